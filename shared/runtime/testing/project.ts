import { extname } from "node:path";
import { fileURLToPath } from "node:url";

/** scripts/test.mjs compiles the sources, with the tests, into a folder beside them; a file run by hand is TypeScript. */
const COMPILED = extname(import.meta.url) === ".js";

/** Flags of a Node process that is to run sources as this one does. */
export const RUN_SOURCES: readonly string[] = COMPILED ? [] : ["--import", "tsx"];

/** Where package.json and docs/ stand. */
export const ROOT = fileURLToPath(new URL(COMPILED ? "../../.." : "../..", import.meta.url));

/** A source file beside that one (its `import.meta.url`), as a process with RUN_SOURCES finds it. */
export function source(file: `${string}.ts`, beside: string): URL {
  return new URL(COMPILED ? file.replace(/ts$/, "js") : file, beside);
}
