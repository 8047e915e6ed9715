import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_TOKEN_BYTES, presentedToken, unfitToken, unverifiedClaims } from "./bearer.ts";

const jwt = (payload: string) => `e30.${Buffer.from(payload).toString("base64url")}.c2ln`;

test("what cannot stand in a header is no token, and the reason holds nothing of it", () => {
  for (const fine of ["a", jwt("{}"), "a~b+c/d-e_f==", "x".repeat(MAX_TOKEN_BYTES)]) {
    assert.equal(unfitToken(fine), undefined);
  }
  assert.match(unfitToken("") ?? "", /empty/);
  assert.match(unfitToken("x".repeat(MAX_TOKEN_BYTES + 1)) ?? "", /longer than 16 KiB/);
  for (const unfit of ["se cret", "se\ncret", "se\r\nX-Cret: 1", "sécret", "se\0cret", "=", "a=b", "Bearer secret"]) {
    assert.equal(unfitToken(unfit), "holds characters that no bearer token has");
  }
});

test("a token is read from Bearer, and from Basic together with a cluster", () => {
  const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
  const cases: [string | undefined, ReturnType<typeof presentedToken>][] = [
    [undefined, undefined],
    ["", undefined],
    ["Bearer", undefined],
    ["Bearer abc", { token: "abc" }],
    ["bearer  abc ", { token: "abc" }],
    ["Bearer ", { token: "" }],
    ["Negotiate abc", undefined],
    [basic("blue:abc:d"), { cluster: "blue", token: "abc:d" }],
    [basic(":abc"), { cluster: "", token: "abc" }],
    [basic("blue"), undefined],
    [`Basic ${"A".repeat(1 << 20)}`, undefined],
  ];
  for (const [header, read] of cases) assert.deepEqual(presentedToken(header), read, header?.slice(0, 40));
});

test("the end of a JWT is read from its payload; what is no JWT has none", () => {
  assert.deepEqual(unverifiedClaims(jwt('{"exp":1700000000}'))?.expiresAt, new Date(1_700_000_000_000));
  for (const payload of ["{}", "null", "[]", "7", "{", '{"exp":"1700000000"}', '{"exp":1e300}']) {
    assert.equal(unverifiedClaims(jwt(payload))?.expiresAt, undefined, payload);
  }
  for (const opaque of ["", "opaque", "a.b", "a.b.c.d"])
    assert.equal(unverifiedClaims(opaque)?.expiresAt, undefined, opaque);
});
