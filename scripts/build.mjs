/**
 * Builds dist/: the program and its packages in few files, which start sooner and need less memory than the many
 * hundred that they are made of (docs/decisions/0039-bundled-build.md). Types are checked by `npm run types`.
 */
import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { joinChunks } from "./join-chunks.mjs";
import { buildPage } from "./page.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const DIST = join(ROOT, "dist");

/** The modules that are run: the program, and its thread (`programFile`). */
const ENTRIES = ["cli/main.ts", "shared/dial/pac-worker.ts"];
/**
 * They are loaded as they are installed: quickjs-wasi reads a file of its package, pino-pretty and kerberos are used by
 * few, and what fastify loads for JSON schemas and injected requests by none.
 */
const AS_INSTALLED = [
  "@fastify/ajv-compiler",
  "@fastify/fast-json-stringify-compiler",
  "kerberos",
  "light-my-request",
  "pino-pretty",
  "quickjs-wasi",
];

/**
 * Node's own modules are loaded by `require`, and only what is used of them is read. An `import` of one reads all that
 * it exports, which on Node.js 24 loads an HTTP client and its WebSocket for the sake of `http.WebSocket`.
 */
const requireOfBuiltins = {
  name: "require-of-builtins",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === "require-call" ? { path, external: true } : { path, namespace: "builtin", sideEffects: false },
    );
    onLoad({ filter: /./, namespace: "builtin" }, async ({ path }) => {
      const names = Object.keys(await import(path)).filter((name) => name !== "default" && name !== "module.exports");
      const members = names.map((name) => `export const ${name} = /* @__PURE__ */ member("${name}");`);
      return {
        contents: `
          const builtin = require("${path}");
          const member = (name) => builtin[name];
          export default builtin;
          ${members.join("\n")}`,
      };
    });
  },
};

/**
 * fastify needs `node:http2` for HTTP/2 alone, and ws `node:zlib` for permessage-deflate: neither is loaded at the
 * start. Left out are what prom-client sends to a push gateway, which takes a function of `node:zlib` at once, and the
 * package by which @fastify/websocket injects requests in tests.
 */
const loadedWhenUsed = {
  name: "loaded-when-used",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?(http2|zlib)$/ }, ({ path, kind, namespace }) =>
      kind === "require-call" && namespace !== "when-used" ? { path, namespace: "when-used" } : undefined,
    );
    onLoad({ filter: /./, namespace: "when-used" }, ({ path }) => ({
      contents: `module.exports = new Proxy({}, { get: (_, member) => require("${path}")[member] });`,
    }));
    onResolve({ filter: /^(\.\/lib\/pushgateway|duplexify)$/ }, ({ path }) => ({ path, namespace: "left-out" }));
    onLoad({ filter: /./, namespace: "left-out" }, () => ({ contents: "module.exports = undefined;" }));
  },
};

/**
 * CommonJS packages ask for Node's own modules by it, and ws for two packages that it can do without. It does not get
 * them: the one file (scripts/binary.mjs) would look for them in the folder that it was started in.
 */
const REQUIRE = `const require = (name) => {
  const found = process.getBuiltinModule(name);
  if (found !== undefined) return found;
  throw Object.assign(new Error("Cannot find module " + name), { code: "MODULE_NOT_FOUND" });
};`;

// A file of an earlier build would be shipped, too.
rmSync(DIST, { recursive: true, force: true });
const chunks = await build({
  absWorkingDir: ROOT,
  entryPoints: ENTRIES,
  outbase: ".",
  outdir: "dist",
  bundle: true,
  // Modules that `import()` loads are in separate files, and are loaded when they are needed.
  splitting: true,
  chunkNames: "chunks/[name]-[hash]",
  format: "esm",
  platform: "node",
  target: "node20.19",
  external: AS_INSTALLED,
  plugins: [loadedWhenUsed, requireOfBuiltins],
  // Code of packages that is not reached here. Bun would write the path of this folder in its place.
  define: { __dirname: "import.meta.dirname" },
  legalComments: "eof",
  // V8 keeps the text of modules in memory. Names stay and lines are short: a stack leads to its place in `dist/`.
  minifyWhitespace: true,
  lineLimit: 120,
  logLevel: "warning",
  write: false,
  metafile: true,
});
await joinChunks(chunks, { root: ROOT, folder: DIST, beforeRequire: REQUIRE });
await buildPage(join(DIST, "ui"));
for (const file of readdirSync(DIST, { recursive: true }).filter((name) => name.endsWith(".js"))) {
  inAscii(join(DIST, file));
}
chmodSync(join(DIST, "cli/main.js"), 0o755);
await import("./revision.mjs");

/**
 * V8 keeps the text of a module in memory, with two bytes for each character if one of them is beyond Latin-1. esbuild
 * leaves such characters in comments and regular expressions, where an escape means the same.
 */
function inAscii(file) {
  const text = readFileSync(file, "utf8");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII is meant
  const escaped = text.replace(/[^\x00-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  writeFileSync(file, escaped);
}
