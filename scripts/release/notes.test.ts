import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { releaseNotes, unknownHeadings, withAbsoluteLinks } from "./notes.ts";

const CHANGELOG = `# Changelog

A line for each change.

## Unreleased

- Not out yet.

## 0.2.0 - 2027-01-31

### Added

- A second thing.

## 0.1.0 - 2026-12-01

The first version.
`;

test("the notes of a version are what stands between its heading and the next one", () => {
  assert.deepEqual(releaseNotes(CHANGELOG, "0.2.0"), { date: "2027-01-31", text: "### Added\n\n- A second thing." });
  assert.deepEqual(releaseNotes(CHANGELOG, "0.1.0"), { date: "2026-12-01", text: "The first version." });
});

test("the notes of a version that has no heading are those of Unreleased, and have no date", () => {
  assert.deepEqual(releaseNotes(CHANGELOG, "0.3.0"), { date: undefined, text: "- Not out yet." });
  assert.equal(releaseNotes("# Changelog\n\n## 0.1.0 - 2026-12-01\n", "0.3.0"), undefined);
});

test("links to files of the repository lead to those of the version; other links stay", () => {
  const text = "[a](docs/a.md#b), [c](https://c.example/), [d](#e)";
  assert.equal(
    withAbsoluteLinks(text, "https://git.example/x/culvert", "0.2.0"),
    "[a](https://git.example/x/culvert/blob/v0.2.0/docs/a.md#b), [c](https://c.example/), [d](#e)",
  );
});

test("CHANGELOG.md begins with Unreleased, and its other headings are a version and a day", () => {
  const changelog = readFileSync(join(ROOT, "CHANGELOG.md"), "utf8");
  assert.deepEqual(unknownHeadings(changelog), []);
  assert.equal(/^## .*/m.exec(changelog)?.[0], "## Unreleased");
  assert.deepEqual(unknownHeadings("## 0.1 - 2026-12-01\n## 0.1.0 (2026-12-01)\n"), [
    "## 0.1 - 2026-12-01",
    "## 0.1.0 (2026-12-01)",
  ]);
});
