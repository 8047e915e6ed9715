import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { REPLY, replyOf, Socks5Reader, type Socks5Step, type VerifyLogin } from "./socks5-reader.ts";

const GREETING = Buffer.of(5, 1, 0);
const IPV4_443 = [5, 1, 0, 1, 10, 0, 0, 1, 1, 187];

const nameRequest = (name: string) => Buffer.from([5, 1, 0, 3, name.length, ...Buffer.from(name), 1, 187]);
const login = (user: string, password: string) =>
  Buffer.from([1, user.length, ...Buffer.from(user), password.length, ...Buffer.from(password)]);
const isAliceWithSecret: VerifyLogin = (user, password) => `${user}:${password}` === "alice:secret";

function read(bytes: Uint8Array, verify?: VerifyLogin): Socks5Step[] {
  return new Socks5Reader(verify).push(Buffer.from(bytes));
}

for (const [what, request, host] of [
  ["an IPv4 address", IPV4_443, "10.0.0.1"],
  ["an IPv6 address", [5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, ...Array(11).fill(0), 1, 1, 187], "2001:db8::1"],
  ["a name", nameRequest("kubelet.example"), "kubelet.example"],
  ["an address that is written as a name", nameRequest("2001:db8::1"), "2001:db8::1"],
] as const) {
  test(`${what} is a target, in pieces of any size, with the client's first bytes behind it`, () => {
    const bytes = Buffer.concat([GREETING, Buffer.from(request), Buffer.from("hello")]);
    for (const size of [1, 2, 3, bytes.length]) {
      const reader = new Socks5Reader();
      const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
        bytes.subarray(at * size, (at + 1) * size),
      );
      const steps: Socks5Step[] = [];
      let early = "";
      for (const piece of pieces) {
        if (steps.some(({ kind }) => kind === "request")) early += piece;
        else steps.push(...reader.push(piece));
      }
      const [answer, asked] = steps;
      assert.deepEqual(answer, { kind: "answer", bytes: Buffer.of(5, 0) });
      assert.equal(asked?.kind, "request");
      if (asked?.kind !== "request") return;
      assert.deepEqual(asked.target, { host, port: 443 });
      assert.equal(`${asked.rest}${early}`, "hello");
    }
  });
}

for (const [what, bytes, answer] of [
  ["another version", [4, 1, 0, 80], []],
  ["an HTTP request", Buffer.from("GET / HTTP/1.1\r\n"), []],
  ["a method of GSSAPI alone", [5, 1, 1], [5, 0xff]],
  ["no method", [5, 0], [5, 0xff]],
  ["BIND", [...GREETING, 5, 2, 0, 1, 10, 0, 0, 1, 1, 187], replyOf(REPLY.commandNotSupported)],
  ["UDP ASSOCIATE", [...GREETING, 5, 3, 0, 1, 10, 0, 0, 1, 1, 187], replyOf(REPLY.commandNotSupported)],
  ["an unknown type of address", [...GREETING, 5, 1, 0, 2, 1], replyOf(REPLY.addressTypeNotSupported)],
  ["port 0", [...GREETING, 5, 1, 0, 1, 10, 0, 0, 1, 0, 0], replyOf(REPLY.failure)],
  ["a name that is none", [...GREETING, ...nameRequest("a b")], replyOf(REPLY.failure)],
  ["an empty name", [...GREETING, ...nameRequest("")], replyOf(REPLY.failure)],
  ["another version in the request", [...GREETING, 4, 1, 0, 1], []],
] as const) {
  test(`${what} is refused as the RFC says`, () => {
    const last = read(Buffer.from(bytes)).at(-1);
    assert.equal(last?.kind, "refuse");
    if (last?.kind === "refuse") assert.deepEqual([...last.bytes], [...answer]);
  });
}

test("where a password is wanted, the right one is accepted, and a wrong one or none is refused", () => {
  const offer = Buffer.of(5, 2, 0, 2);
  const kinds = (bytes: Buffer) => read(bytes, isAliceWithSecret).map(({ kind }) => kind);
  const request = Buffer.from(IPV4_443);
  assert.deepEqual(kinds(Buffer.concat([offer, login("alice", "secret"), request])), ["answer", "answer", "request"]);
  assert.deepEqual(kinds(Buffer.concat([offer, login("alice", "Secret"), request])), ["answer", "refuse"]);
  assert.deepEqual(kinds(Buffer.concat([offer, Buffer.of(1, 0, 0), request])), ["answer", "refuse"]);
  assert.deepEqual(kinds(GREETING), ["refuse"]);
});

test("whatever bytes come in whatever pieces, the reader ends with at most one target, and never throws", () => {
  const valid = fc.constantFrom([...GREETING], [5, 2, 0, 2], IPV4_443, [...login("alice", "secret")]);
  const chunk = fc.oneof(fc.array(fc.nat(255), { maxLength: 40 }), valid);
  fc.assert(
    fc.property(fc.array(chunk, { maxLength: 8 }), fc.boolean(), (chunks, asksPassword) => {
      const reader = new Socks5Reader(asksPassword ? isAliceWithSecret : undefined);
      const inPieces = chunks.flatMap((bytes) => reader.push(Buffer.from(bytes)));
      const ends = inPieces.filter(({ kind }) => kind !== "answer");
      assert.ok(ends.length <= 1);
      assert.ok(ends.length === 0 || inPieces.at(-1) === ends[0], "nothing follows the end");
      // Bytes after the end are for the target, or for nobody.
      const atOnce = read(Buffer.from(chunks.flat()), asksPassword ? isAliceWithSecret : undefined);
      const kinds = (steps: readonly Socks5Step[]) => steps.map(({ kind }) => kind);
      assert.deepEqual(kinds(atOnce), kinds(inPieces));
    }),
    { numRuns: 2_000 },
  );
});
