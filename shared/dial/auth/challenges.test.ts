import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Challenge, parseChallenges } from "./challenges.ts";

/** `scheme token {name: value}` of each challenge. */
function shown(...fields: string[]): unknown[] {
  return parseChallenges(fields).map(({ scheme, token, parameters }) => [
    scheme,
    token ?? "",
    Object.fromEntries(parameters),
  ]);
}

test("challenges are read from one field or several, and commas part them from their parameters", () => {
  assert.deepEqual(shown("Negotiate", "NTLM", 'Basic realm="a, b"'), [
    ["negotiate", "", {}],
    ["ntlm", "", {}],
    ["basic", "", { realm: "a, b" }],
  ]);
  assert.deepEqual(
    shown('negotiate, NTLM ,Digest realm="x\\"y", QOP="auth,auth-int" , algorithm=MD5,, Basic realm = z'),
    [
      ["negotiate", "", {}],
      ["ntlm", "", {}],
      ["digest", "", { realm: 'x"y', qop: "auth,auth-int", algorithm: "MD5" }],
      ["basic", "", { realm: "z" }],
    ],
  );
  assert.deepEqual(shown("Negotiate YIIab+/c==, Basic realm=x"), [
    ["negotiate", "YIIab+/c==", {}],
    ["basic", "", { realm: "x" }],
  ]);
});

test("what cannot be read is left out, and what follows is not", () => {
  assert.deepEqual(shown("@@, Basic realm=x"), [["basic", "", { realm: "x" }]]);
  assert.deepEqual(shown('Digest realm="never ends, nonce=n, Basic realm=x'), [
    ["digest", "", { nonce: "n" }],
    ["basic", "", { realm: "x" }],
  ]);
  assert.deepEqual(shown("realm=x", ""), []);
  for (const control of ["\0", "\r", "\x1f", "\x7f", "\\\0"]) {
    assert.deepEqual(shown(`Digest realm="a${control}b", nonce=n`), [["digest", "", { nonce: "n" }]]);
  }
  assert.deepEqual(shown('Basic realm="a\tb\x80\xff"'), [["basic", "", { realm: "a\tb\x80\xff" }]]);
  assert.deepEqual(shown("Basic realm=one, realm=two"), [["basic", "", { realm: "one" }]]);
});

const name = fc.stringMatching(/^[A-Za-z][A-Za-z0-9-]{0,8}$/);
const parameters = fc.uniqueArray(fc.tuple(name, fc.string()), {
  selector: ([key]) => key.toLowerCase(),
  maxLength: 4,
});
const challenge = fc.oneof(
  fc.record({ scheme: name, token: fc.stringMatching(/^[A-Za-z0-9+/]{1,12}={0,2}$/), parameters: fc.constant([]) }),
  fc.record({ scheme: name, token: fc.constant(undefined), parameters }),
);

test("whatever challenges are written are read again", () => {
  fc.assert(
    fc.property(fc.array(fc.array(challenge, { minLength: 1, maxLength: 4 }), { maxLength: 3 }), (fields) => {
      const written = fields.map((challenges) =>
        challenges
          .map(({ scheme, token, parameters }) => {
            const list = parameters.map(([key, value]) => `${key}="${value.replace(/["\\]/g, "\\$&")}"`);
            return `${scheme} ${token ?? list.join(", ")}`.trim();
          })
          .join(", "),
      );
      const expected = fields.flat().map(
        ({ scheme, token, parameters }): Challenge => ({
          scheme: scheme.toLowerCase(),
          token,
          parameters: new Map(parameters.map(([key, value]) => [key.toLowerCase(), value])),
        }),
      );
      assert.deepEqual(parseChallenges(written), expected);
    }),
  );
});

test("no text is too much for it", () => {
  const pieces = fc.constantFrom('"', "\\", ",", "=", " ", "a", "Basic ", "realm=", 'x="', "@", "\t", "\u00fc");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(pieces, { maxLength: 60 }).map((list) => list.join("")),
      ),
      (text) => {
        for (const { scheme } of parseChallenges([text])) assert.notEqual(scheme, "");
      },
    ),
  );
});
