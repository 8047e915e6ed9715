import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import fc from "fast-check";
import { editDistance, matchesWildcard, nearest, revealsSecret, seconds, shellQuoted } from "./text.ts";

const KNOWN = ["server-cert", "server-key", "server-ca-cert", "uds-name", "agent-port", "admin-port"];

test("a mistyped word finds the one that was meant", () => {
  assert.equal(nearest("server-crt", KNOWN), "server-cert");
  assert.equal(nearest("uds-nmae", KNOWN), "uds-name");
  assert.equal(nearest("agnet-port", KNOWN), "agent-port");
});

test("a word that resembles nothing gets no guess", () => {
  assert.equal(nearest("colour", KNOWN), undefined);
  assert.equal(nearest("x", [...KNOWN, "v"]), undefined);
  assert.equal(nearest("x".repeat(10_000), KNOWN), undefined);
});

test("the distance is symmetric, and nothing only for equal words", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (a, b) => {
      assert.equal(editDistance(a, b), editDistance(b, a));
      assert.equal(editDistance(a, b) === 0, a === b);
    }),
  );
  assert.equal(editDistance("ab", "ba"), 1);
});

test("a time in a sentence has two digits, and no zeros that say nothing", () => {
  const table: [number, string][] = [
    [0, "0 s"],
    [5, "0.005 s"],
    [60, "0.06 s"],
    [299.6, "0.3 s"],
    [4_899, "4.9 s"],
    [4_999.5, "5 s"],
    [8_000, "8 s"],
    [125_400, "125 s"],
    [300_000, "300 s"],
  ];
  for (const [ms, text] of table) assert.equal(seconds(ms), text);
});

test("a secret is found by the beginning of it, and of each of its parts, whatever is done to the signs between", () => {
  const secret = "e30.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl/Yml0cw==";
  for (const text of [
    `Authorization: Bearer ${secret}`,
    `cut: ${secret.slice(0, 8)}`,
    `?token=${encodeURIComponent(secret)}`,
    "the payload is eyJzdWIiOiJhZ2VudCJ9",
    'the signature is "c2lnbmF0dXJl\\/Yml0cw=="',
  ]) {
    assert.equal(revealsSecret(text, secret), true, text);
  }
  for (const text of ["", "Forbidden", "e30.", "the token has expired"])
    assert.equal(revealsSecret(text, secret), false, text);
  assert.equal(revealsSecret("anything", ""), false);
  assert.equal(revealsSecret("it is a-b-c", "a-b-c"), true);
});

test("wildcards match as the equal regular expression does", () => {
  const pattern = fc.array(fc.constantFrom("a", "b", "*"), { maxLength: 8 }).map((part) => part.join(""));
  const value = fc.array(fc.constantFrom("a", "b"), { maxLength: 12 }).map((part) => part.join(""));
  fc.assert(
    fc.property(pattern, value, (text, name) => {
      const expected = new RegExp(`^${text.replaceAll("*", ".*")}$`).test(name);
      assert.equal(matchesWildcard(text.split("*"), name), expected);
    }),
    { numRuns: 2000 },
  );
});

test("first and last piece never share a character", () => {
  assert.equal(matchesWildcard(["ab", "ba"], "aba"), false);
  assert.equal(matchesWildcard(["ab", "ba"], "abba"), true);
});

test("a shell reads a quoted path back as it was", () => {
  for (const path of ["/tmp/a.b_c+d-e", "it's", "a b", "$(echo x)", "`x`", '"', "\\", "a\nb"]) {
    const { stdout } = spawnSync("sh", ["-c", `printf %s ${shellQuoted(path)}`], { encoding: "utf8" });
    assert.equal(stdout, path);
  }
  assert.equal(shellQuoted("/tmp/a.b_c+d-e"), "/tmp/a.b_c+d-e");
});
