/**
 * Builds dist/: the program and its packages in few files, which start sooner and need less memory than the many hundred
 * that they are made of (docs/decisions/0039-bundled-build.md). Types are checked by `npm run types`.
 */
import { chmodSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const DIST = join(ROOT, "dist");

/** The modules that processes run: the program, and what it starts as processes of their own (`programFile`). */
const ENTRIES = ["cli/main.ts", "cli/demo/target.ts", "shared/dial/pac-process.ts"];
/**
 * They are loaded as they are installed: pac-resolver and quickjs-wasi by a process that may read nothing else, and
 * pino-pretty and kerberos by few.
 */
const AS_INSTALLED = ["kerberos", "pac-resolver", "pino-pretty", "quickjs-wasi"];

// A file of an earlier build would be shipped, too.
rmSync(DIST, { recursive: true, force: true });
await build({
  absWorkingDir: ROOT,
  entryPoints: ENTRIES,
  outbase: ".",
  outdir: "dist",
  chunkNames: "chunks/[name]-[hash]",
  bundle: true,
  // What `import()` loads is in files of its own, and is loaded when it is needed.
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  external: AS_INSTALLED,
  legalComments: "eof",
  // CommonJS packages ask for Node's own modules by it.
  banner: {
    js: 'import { createRequire as $requireFrom } from "node:module"; const require = $requireFrom(import.meta.url);',
  },
  logLevel: "warning",
});
chmodSync(join(DIST, "cli/main.js"), 0o755);
await import("./revision.mjs");
