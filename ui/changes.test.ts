import assert from "node:assert/strict";
import { test } from "node:test";
import { withChanges } from "./changes.ts";

test("a message changes the facts that it names, removes those that are null, and leaves the others as they are", () => {
  const before = withChanges({}, '{"problems":[],"cluster/a":{"cluster":"a"},"cluster/b":{"cluster":"b"}}');
  const after = withChanges(before, '{"cluster/b":null,"cluster/a":{"refusedAt":null}}');
  assert.deepEqual(after, { problems: [], "cluster/a": { refusedAt: null } });
  assert.equal(after.problems, before.problems, "the same object, so that it is not drawn again");
});

test("invisible characters in any text of a message are made visible", () => {
  const { problems } = withChanges({}, JSON.stringify({ problems: ["a\u0000b"] }));
  assert.deepEqual(problems, ["a\\u{0}b"]);
});
