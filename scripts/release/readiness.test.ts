import assert from "node:assert/strict";
import { test } from "node:test";
import { notReady, type ReleaseFacts } from "./readiness.ts";

const READY: ReleaseFacts = {
  version: "0.2.0",
  isPrivate: false,
  repository: "https://git.example/x/culvert",
  notes: { date: "2027-01-31", text: "- A second thing." },
  tags: ["nightly", "v0.2.0"],
  hasUncommittedChanges: false,
};

test("a tagged commit with a repository, a public package and dated notes can be released", () => {
  assert.deepEqual(notReady(READY), []);
});

for (const [name, change, sentence] of [
  ["a repository", { repository: undefined }, /no repository/],
  ["a public package", { isPrivate: true }, /"private"/],
  ["dated notes", { notes: { date: undefined, text: "- A thing." } }, /no heading for 0\.2\.0/],
  ["notes", { notes: undefined }, /no heading for 0\.2\.0/],
  ["the tag of its version", { tags: ["v0.2"] }, /no tag v0\.2\.0/],
  ["all changes committed", { hasUncommittedChanges: true }, /not committed/],
] as const) {
  test(`a commit without ${name} cannot be released, and the sentence says what to do`, () => {
    const [first = "", ...others] = notReady({ ...READY, ...change });
    assert.match(first, sentence);
    assert.deepEqual(others, []);
  });
}
