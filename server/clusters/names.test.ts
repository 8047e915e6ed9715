import assert from "node:assert/strict";
import { test } from "node:test";
import { parseServerName, ServerNames } from "./names.ts";

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

test("names of the configuration have one spelling", () => {
  assert.equal(parseServerName("Blue.Example."), "blue.example");
  assert.equal(parseServerName("*.Bücher.example"), "*.xn--bcher-kva.example");
});

for (const [text, sentence] of [
  ["*", /star stands alone for the first label/],
  ["a.*.example", /star stands alone/],
  ["*a.example", /star stands alone/],
  ["10.0.0.1", /IP address/],
  ["a..b", /no host name/],
  ["*.", /is empty/],
  [`${"a".repeat(64)}.example`, /label of 64 bytes/],
] as const) {
  test(`the name "${text}" is refused with its cure`, () => {
    assert.throws(() => parseServerName(text), sentence);
  });
}
