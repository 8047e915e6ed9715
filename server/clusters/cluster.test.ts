import assert from "node:assert/strict";
import { test } from "node:test";
import { ServerNames } from "./cluster.ts";

const names = new ServerNames([
  { value: "blue", names: ["blue.example", "*.blue.example"] },
  { value: "red", names: ["red.example", "special.blue.example", "xn--bcher-kva.example"] },
  { value: "mute", names: [] },
]);

for (const [asked, found] of [
  ["blue.example", "blue"],
  ["BLUE.Example.", "blue"],
  ["one.blue.example", "blue"],
  ["special.blue.example", "red"],
  ["one.two.blue.example", undefined],
  [".blue.example", undefined],
  ["*.blue.example", undefined],
  ["bücher.example", "red"],
  ["XN--BCHER-KVA.example", "red"],
  ["example", undefined],
  ["", undefined],
  [undefined, undefined],
  ["__proto__", undefined],
  ["constructor", undefined],
  ["blue.example\0.evil", undefined],
  ["10.0.0.1", undefined],
] as const) {
  test(`the name ${JSON.stringify(asked)} leads to ${found ?? "nobody"}`, () => {
    assert.equal(names.find(asked), found);
  });
}

test("what is alone on a port and has no names is found under any, and without one", () => {
  const alone = new ServerNames([{ value: "blue", names: [] }]);
  assert.equal(alone.single, "blue");
  for (const name of [undefined, "", "any.example", "10.0.0.1"]) assert.equal(alone.find(name), "blue");
});

test("what is alone and has names is found under these only", () => {
  const alone = new ServerNames([{ value: "blue", names: ["blue.example"] }]);
  assert.equal(alone.single, undefined);
  assert.equal(alone.find("red.example"), undefined);
  assert.equal(alone.find(undefined), undefined);
});
