import { installMusl } from "../binary/harness/musl.ts";
import { ACTIONLINT, HELM, installGoTool } from "./go-tool.ts";

/**
 * `node --import tsx e2e/harness/install-tools.ts`: builds or fetches the programs that the tests use into the cache,
 * where they are not there yet.
 */
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => interrupted.abort(new Error(`ended by ${signal}`)));
}
for (const tool of [HELM, ACTIONLINT]) console.log(await installGoTool(tool, interrupted.signal));
console.log(await installMusl());
