/**
 * Runs the tests: `node scripts/test.mjs unit|e2e|all [names of files or options of node --test]`.
 * Node 20 has no globs for tests, so the list of files is made in scripts/suites.mjs.
 */
import { filesOf, runSuites, SUITES } from "./suites.mjs";

const [name = "all", ...rest] = process.argv.slice(2);
const names = name === "all" ? ["unit", "e2e"] : [name];
const options = rest.filter((argument) => argument.startsWith("-"));
const words = rest.filter((argument) => !argument.startsWith("-"));

if (names.some((suite) => !Object.hasOwn(SUITES, suite))) {
  console.error(`There is no suite "${name}". Use: ${Object.keys(SUITES).join(", ")}, all.`);
  process.exit(2);
}
const suites = names.map((suite) => ({ suite, files: filesOf(suite, words) }));
if (suites.every(({ files }) => files.length === 0)) {
  console.error(`No test file matches ${words.join(", ")}.`);
  process.exit(2);
}
process.exitCode = await runSuites(suites, { options });
