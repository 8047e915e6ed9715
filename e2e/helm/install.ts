import { installHelm } from "./harness/helm-program.ts";

/**
 * `node --import tsx e2e/helm/install.ts`: builds the helm that the tests use into the cache, where it is not there
 * yet.
 */
const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => interrupted.abort(new Error(`ended by ${signal}`)));
}
console.log(await installHelm(interrupted.signal));
