import { dirname, join, relative, resolve } from "node:path";
import { rollup } from "rollup";

/** The programs, and the parts that most of them load: the modules that each loads by `import()` at every start. */
const STARTS = {
  cli: ["shared/limits/descriptor-shortage.ts", "cli/command-line.ts"],
  server: ["cli/service.ts", "server/server.ts", "server/options/options.ts"],
  agent: ["cli/service.ts", "agent/agent.ts", "agent/context/options.ts"],
  router: ["cli/service.ts", "router/router.ts", "router/options.ts"],
  socks5: ["cli/service.ts", "sidecars/socks5-proxy.ts", "sidecars/options.ts"],
  http: ["cli/service.ts", "sidecars/http-proxy.ts", "sidecars/options.ts"],
  fastify: ["node_modules/fastify/fastify.js"],
  websocket: ["node_modules/@fastify/websocket/index.js"],
};

/**
 * Writes what esbuild has made, in fewer files: those that the same programs load at every start become one. esbuild
 * makes one for each set of `import()` that reach it, and a hundred files load more slowly than ten.
 * `beforeRequire`: the code before that which uses `require`.
 */
export async function joinChunks({ outputFiles, metafile: { outputs } }, { root, folder, beforeRequire }) {
  const texts = new Map(
    outputFiles.map(({ path, text }) => [path, text.includes("typeof require") ? beforeRequire + text : text]),
  );
  const programsOf = programsByFile(outputs);
  const entries = Object.entries(outputs).filter(([file]) => !file.includes("/chunks/"));
  const bundle = await rollup({
    input: Object.fromEntries(entries.map(([file]) => [file.replace(/^dist\/|\.js$/g, ""), join(root, file)])),
    treeshake: false,
    plugins: [
      {
        name: "made-by-esbuild",
        resolveId(id, importer) {
          const path = importer === undefined ? id : resolve(dirname(importer), id);
          return texts.has(path) ? path : { id, external: true };
        },
        load: (path) => texts.get(path),
      },
    ],
  });
  await bundle.write({
    dir: folder,
    entryFileNames: "[name].js",
    chunkFileNames: "chunks/[name]-[hash].js",
    generatedCode: "es2015",
    hoistTransitiveImports: false,
    manualChunks: (path) => programsOf.get(relative(root, path)),
  });
}

/** The names of the programs that load a file at every start. */
function programsByFile(outputs) {
  const fileOf = new Map(Object.entries(outputs).map(([file, { entryPoint }]) => [entryPoint, file]));
  const programs = new Map();
  for (const [program, modules] of Object.entries(STARTS)) {
    const files = new Set();
    for (const module of modules) addWithImports(fileOf.get(module), outputs, files);
    for (const file of files) programs.set(file, programs.has(file) ? `${programs.get(file)}-${program}` : program);
  }
  return programs;
}

function addWithImports(file, outputs, files) {
  if (files.has(file)) return;
  files.add(file);
  for (const { path, kind } of outputs[file].imports) {
    if (kind === "import-statement" && path in outputs) addWithImports(path, outputs, files);
  }
}
