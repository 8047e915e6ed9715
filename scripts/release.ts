/**
 * `npm run release`: makes the files of a release in the folder release/ and checks each. It publishes nothing:
 * .github/workflows/release.yml does, with these files (RELEASING.md).
 *
 * - `--dry-run` makes them of any commit, and says at what a release would stop. The one executable file is made for
 *   this machine only.
 * - `--no-build` takes dist/ as it is.
 * - `--out FOLDER` is another folder for the files. Its contents are removed.
 */
import { mkdirSync, rmSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { REPOSITORY } from "./release/addresses.ts";
import { charts, checksums, npmPackage, oneFile, ROOT, run, sbom } from "./release/artefacts.ts";
import { releaseNotes, withAbsoluteLinks } from "./release/notes.ts";
import { notReady } from "./release/readiness.ts";

const NOT_HERE = `Not made here, but by .github/workflows/release.yml:
  - the one executable file for other platforms than this machine's
  - the image for amd64 and arm64, with its SBOM and provenance
  - signatures by cosign of image, charts and SHA256SUMS
  - the provenance of the npm package`;

const { values } = parseArgs({
  options: {
    "dry-run": { type: "boolean", default: false },
    "no-build": { type: "boolean", default: false },
    out: { type: "string", default: join(ROOT, "release") },
  },
});
const out = resolve(values.out);
const { version, private: isPrivate = false } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
  readonly version: string;
  readonly private?: boolean;
};
const notes = releaseNotes(await readFile(join(ROOT, "CHANGELOG.md"), "utf8"), version);

const missing = notReady({
  version,
  isPrivate,
  repository: REPOSITORY,
  notes,
  tags: (await run("git", ["tag", "--points-at", "HEAD"])).split("\n"),
  hasUncommittedChanges: (await run("git", ["status", "--porcelain"])) !== "",
});
if (missing.length > 0) {
  console.log(`culvert ${version} cannot be released yet:\n${missing.map((each) => `  - ${each}`).join("\n")}\n`);
}
if (missing.length === 0 || values["dry-run"]) await makeFiles();
else process.exitCode = 1;

async function makeFiles(): Promise<void> {
  if (!values["no-build"]) await run("npm", ["run", "-s", "build"]);
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  console.log(`The files of ${version} in ${out}:`);
  const executable = () => oneFile(out, version, !values["dry-run"]);
  for (const make of [npmPackage, charts, executable, sbom, notesFile, checksums]) {
    console.log(`  ✓ ${await make(out, version)}`);
  }
  console.log(`\n${NOT_HERE}`);
}

async function notesFile(): Promise<string> {
  const text = notes?.text ?? "";
  if (text === "") throw new Error(`CHANGELOG.md says nothing about ${version}`);
  const linked = REPOSITORY === undefined ? text : withAbsoluteLinks(text, REPOSITORY, version);
  await writeFile(join(out, "NOTES.md"), `${linked}\n`);
  return `NOTES.md: ${linked.split("\n").length} lines of CHANGELOG.md`;
}
