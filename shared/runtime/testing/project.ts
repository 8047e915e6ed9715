import { extname } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * scripts/test.mjs compiles sources and tests into a folder of the project; a test that is run by hand is TypeScript.
 */
const COMPILED = extname(import.meta.url) === ".js";

/** Arguments of a Node process that runs the sources in the same form as this process. */
export const RUN_SOURCES: readonly string[] = COMPILED ? [] : ["--import", "tsx"];

/** The folder of package.json and docs/. */
export const ROOT = fileURLToPath(new URL(COMPILED ? "../../../.." : "../../..", import.meta.url));

/**
 * The URL of a source file relative to the module `beside` (its `import.meta.url`), in the form that RUN_SOURCES runs.
 */
export function source(file: `${string}.ts`, beside: string): URL {
  return new URL(COMPILED ? file.replace(/ts$/, "js") : file, beside);
}
