import assert from "node:assert/strict";
import { test } from "node:test";
import { PEER_GROUPS, readSettings } from "./settings.ts";

test("with a folder of peers the groups that start every product are measured, without one the others", () => {
  assert.deepEqual(readSettings(["--peers", "programs"]).only, PEER_GROUPS);
  const without: readonly string[] = readSettings([]).only;
  assert.deepEqual(
    PEER_GROUPS.filter((group) => without.includes(group)),
    [],
  );
});

test("a part of the comparison does not become the page", () => {
  assert.throws(() => readSettings(["--page"]), /--page wants --peers/);
  assert.throws(() => readSettings(["--page", "--peers", "programs", "--only", "dials"]), /no --only/);
});
