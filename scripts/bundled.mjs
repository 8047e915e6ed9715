import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { build, stop } from "esbuild";

/** Packages that Node loads slowly, because they have many hundred files. */
const PACKAGES = [
  "@fastify/websocket",
  "@peculiar/x509",
  "commander",
  "fast-check",
  "fastify",
  "jose",
  "prom-client",
  "ws",
  "yaml",
  "zod",
];
/** They look for files beside their own. */
const AS_INSTALLED = ["pino", "quickjs-wasi"];

/**
 * Makes one file of each of the packages, in the node_modules of `folder`, where compiled sources find it before the
 * packages of the root. Packages still share their common modules.
 */
export async function bundlePackages(folder) {
  const modules = join(folder, "node_modules");
  const entries = join(folder, ".entries");
  await import(pathToFileURL(join(folder, "shared/pki/reflect.js")).href); // @peculiar/x509 does not load without
  for (const name of PACKAGES) write(join(entries, `${name}.mjs`), await everyExportOf(name));
  await build({
    ...{ bundle: true, splitting: true, format: "esm", platform: "node", target: "node20", logLevel: "error" },
    entryPoints: PACKAGES.map((name) => ({ in: join(entries, `${name}.mjs`), out: join(name, "index") })),
    outdir: modules,
    outExtension: { ".js": ".mjs" },
    chunkNames: ".shared/[hash]",
    external: AS_INSTALLED,
    // CommonJS asks for Node's own modules by it.
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
  });
  for (const name of PACKAGES) {
    write(join(modules, name, "package.json"), JSON.stringify({ name, type: "module", exports: "./index.mjs" }));
  }
  rmSync(entries, { recursive: true });
  await stop(); // its process is not to stay for the whole run
}

/** By their names, which of a CommonJS package only Node knows. */
async function everyExportOf(name) {
  const names = Object.keys(await import(name)).filter((key) => key !== "module.exports");
  return `export { ${names.join(", ")} } from ${JSON.stringify(name)};\n`;
}

function write(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
