/**
 * Imported by each test file's process, by the soak and by the bench: ends it without Node's own teardown, once its
 * event loop is empty and everybody has been told. Node 20's teardown (Environment::CleanupHandles) now and then waits
 * for ever, spinning, for a request that is not there any more. Handles that a test leaves open still keep its process
 * alive, and are still seen.
 */
process.once("beforeExit", () => process.on("exit", (code) => process.exit(code)));
