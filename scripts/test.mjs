/**
 * Runs tests: `node scripts/test.mjs unit|e2e|first|rest|bun [names of files or options of node --test]`. Node 20 has
 * no globs for tests, so the list of files is made in scripts/suites.mjs.
 */
import { filesOf, PARTS, runSuites, SUITES } from "./suites.mjs";

const [name = "first", ...more] = process.argv.slice(2);
const options = more.filter((argument) => argument.startsWith("-"));
const words = more.filter((argument) => !argument.startsWith("-"));

if (!Object.hasOwn(SUITES, name) && !Object.hasOwn(PARTS, name)) {
  console.error(`There are no tests "${name}". Use: ${Object.keys({ ...SUITES, ...PARTS }).join(", ")}.`);
  process.exit(2);
}
// Words choose among the files of a part as well.
const chosen = (files) => files.filter((file) => words.length === 0 || words.some((word) => file.includes(word)));
const runs = PARTS[name]?.map((run) => ({ ...run, files: chosen(run.files) })) ?? [
  { suite: name, files: filesOf(name, words) },
];
if (runs.every(({ files }) => files.length === 0)) {
  console.error(`No test file matches ${words.join(", ")}.`);
  process.exit(2);
}
process.exitCode = await runSuites(runs, { options });
