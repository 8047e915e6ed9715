import assert from "node:assert/strict";
import { test } from "node:test";
import { cellOf, notesOf } from "./cells.ts";

const TEN = "one two three four five six seven eight nine ten.";

test("a text of at most 30 words is one cell", () => {
  assert.deepEqual(cellOf(`${TEN} ${TEN} ${TEN}`), { cell: `${TEN} ${TEN} ${TEN}`, rest: "" });
});

test("of a longer text the cell has the first whole sentences, and the list below the rest", () => {
  assert.deepEqual(cellOf(`${TEN} ${TEN} ${TEN} More.`), {
    cell: `${TEN} ${TEN} (continued below)`,
    rest: `${TEN} More.`,
  });
  assert.deepEqual(
    notesOf([
      ["--a", ""],
      ["--b", `${TEN} ${TEN} ${TEN}`],
    ]),
    ["", `- \`--b\`: ${TEN} ${TEN} one two`, "  three four five six seven eight nine ten."],
  );
  assert.deepEqual(notesOf([["--a", ""]]), []);
});
