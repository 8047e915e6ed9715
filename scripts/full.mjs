/**
 * Runs all suites with whole matrices and long random tests, as scripts/test.mjs does with fewer:
 * `npm run test:full [-- names of files]`.
 */
process.env.CULVERT_FULL = "1";
process.env.CI = "true";
process.argv.splice(2, 0, "all");
await import("./test.mjs");
