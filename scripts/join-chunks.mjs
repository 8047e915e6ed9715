import { dirname, join, relative, resolve } from "node:path";
import { rollup } from "rollup";

const IMPORT = "import-statement";
const SERVICE = ["cli/service.ts", "node_modules/fastify/fastify.js"];
/** The modules that each program loads by `import()` at every start. */
const STARTS = {
  cli: ["cli/command-line.ts"],
  server: [...SERVICE, "server/server.ts", "server/options/options.ts", "node_modules/@fastify/websocket/index.js"],
  agent: [...SERVICE, "agent/agent.ts", "agent/context/options.ts"],
  router: [...SERVICE, "router/router.ts", "router/options.ts"],
  socks5: [...SERVICE, "sidecars/socks5-proxy.ts", "sidecars/options.ts"],
  http: [...SERVICE, "sidecars/http-proxy.ts", "sidecars/options.ts"],
};

/**
 * Writes what esbuild has made, in fewer files: those that the same programs load become one. esbuild makes one for
 * each set of `import()` that reach it, and a hundred files load more slowly than ten. `beforeRequire`: the code before
 * that which uses `require`.
 */
export async function joinChunks({ outputFiles, metafile: { outputs } }, { root, folder, beforeRequire }) {
  const texts = new Map(
    outputFiles.map(({ path, text }) => [path, text.includes("typeof require") ? beforeRequire + text : text]),
  );
  const groups = groupsOf(outputs);
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
    manualChunks: (path) => groups.get(relative(root, path)),
  });
}

/**
 * A name for each file that some programs load at every start: those programs, and those that may load it later. The
 * latter are not to load with it what only the former need.
 */
function groupsOf(outputs) {
  const loadedAlone = new Map(Object.entries(outputs).map(([file, { entryPoint }]) => [entryPoint, file]));
  const fileOf = (module) => {
    if (loadedAlone.has(module)) return loadedAlone.get(module);
    throw new Error(`scripts/join-chunks.mjs: no import() loads ${module}`);
  };
  const starting = new Set(Object.values(STARTS).flat().map(fileOf));
  const names = new Map();
  const addName = (file, name) => names.set(file, [...(names.get(file) ?? []), name]);
  const later = [];
  for (const [program, modules] of Object.entries(STARTS)) {
    const atStart = reachedFrom(modules.map(fileOf), outputs, ({ kind }) => kind === IMPORT);
    const ever = reachedFrom([...atStart], outputs, ({ kind, path }) => kind === IMPORT || !starting.has(path));
    for (const file of atStart) addName(file, program);
    for (const file of ever) if (!atStart.has(file)) later.push([file, `${program}_later`]);
  }
  for (const [file, name] of later) if (names.has(file)) addName(file, name);
  return new Map(Array.from(names, ([file, all]) => [file, all.join("-")]));
}

/** The files, and all that they load by the edges that count. */
function reachedFrom(files, outputs, counts) {
  const reached = new Set(files);
  for (const file of reached) {
    for (const edge of outputs[file].imports) if (edge.path in outputs && counts(edge)) reached.add(edge.path);
  }
  return reached;
}
