/**
 * Runs all suites with whole matrices and long random tests: `npm run test:full [-- names of files]`, as scripts/test.mjs.
 */
process.env.CULVERT_FULL = "1";
process.env.CI = "true";
process.argv.splice(2, 0, "all");
await import("./test.mjs");
