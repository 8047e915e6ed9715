import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalServerName, parseServerNamePattern, sniOf } from "./server-name.ts";

const LABEL_63 = "a".repeat(63);

test("a name has one spelling: lower case, no final dot, A-labels", () => {
  for (const [text, name] of [
    ["blue.example.com", "blue.example.com"],
    ["Blue.EXAMPLE.com.", "blue.example.com"],
    ["localhost", "localhost"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["BÜCHER.example.", "xn--bcher-kva.example"],
    ["xn--bcher-kva.example", "xn--bcher-kva.example"],
    ["blue。example", "blue.example"],
    ["__proto__", "__proto__"],
    ["constructor.example", "constructor.example"],
    ["_dns.example", "_dns.example"],
    ["1.2.3.4.example", "1.2.3.4.example"],
    [`${LABEL_63}.${LABEL_63}.${LABEL_63}.${"a".repeat(61)}`, undefined],
  ] as const) {
    assert.deepEqual(canonicalServerName(text), { name: name ?? text });
  }
});

test("an invalid name has its reason", () => {
  for (const [text, fault] of [
    ["", /is empty/],
    [".", /is empty/],
    ["blue.example\0.evil", /NUL/],
    ["blue\n.example", /control byte/],
    ["blue\x7f.example", /control byte/],
    ["10.0.0.1", /is an IP address,/],
    ["10.0.0.1.", /is an IP address,/],
    ["::1", /is an IP address,/],
    ["[2001:db8::1]", /is an IP address,/],
    ["１０.0.0.1", /is an IP address,/],
    ["127.1", /in disguise/],
    ["0x7f000001", /in disguise/],
    [`${LABEL_63}a.example`, /label of 64 bytes/],
    [`${LABEL_63}.${LABEL_63}.${LABEL_63}.${"a".repeat(62)}`, /254 bytes long/],
    ["a.".repeat(40_000), /80000 bytes long/],
    ["ü".repeat(500), /label of|bytes long|no form in ASCII/],
    ["blue..example", /is no host name/],
    [".example", /is no host name/],
    ["*.example", /is no host name/],
    ["blue example", /is no host name/],
    ["-blue.example", /is no host name/],
    ["blue.example:443", /is no host name/],
    ["blue.example/ä", /is no host name/],
    ["blue.example?ä", /is no host name/],
    ["b%6Cue.example#ä", /is no host name/],
    ["blue.example\\ä", /is no host name/],
    ["ä@blue.example", /is no host name/],
    ["\u202eblue.example", /is no host name: it has no form in ASCII/],
  ] as const) {
    assert.match(canonicalServerName(text).fault ?? "accepted", fault, JSON.stringify(text.slice(0, 80)));
  }
});

test("any text is a name or a fault, and a canonical name is its own canonical name", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.domain(), fc.string({ unit: "grapheme" })), (text) => {
      const { name } = canonicalServerName(text);
      if (name === undefined) return;
      assert.match(name, /^[a-z0-9_.-]{1,253}$/);
      assert.deepEqual(canonicalServerName(name), { name });
      assert.deepEqual(canonicalServerName(`${name}.`), { name });
      assert.deepEqual(canonicalServerName(name.toUpperCase()), { name });
    }),
  );
});

test("names of the configuration have one spelling", () => {
  assert.equal(parseServerNamePattern("Blue.Example."), "blue.example");
  assert.equal(parseServerNamePattern("*.Bücher.example"), "*.xn--bcher-kva.example");
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
    assert.throws(() => parseServerNamePattern(text), sentence);
  });
}

test("a name is asked for, and an address of either family is not", () => {
  assert.deepEqual(sniOf("server.example"), { servername: "server.example" });
  assert.deepEqual(sniOf("192.0.2.1"), {});
  assert.deepEqual(sniOf("2001:db8::1"), {});
});
