import assert from "node:assert/strict";
import { once } from "node:events";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import fc from "fast-check";
import { CulvertError, isOutcomeCode, OUTCOMES, outcome } from "../outcomes.ts";
import {
  encodeAnswer,
  encodeOpen,
  MAX_HEAD_BYTES,
  type OpenRequest,
  parseAnswer,
  parseOpen,
  readOpen,
  receiveHead,
} from "./stream-head.ts";
import { readAnswer } from "./testing/answer.ts";

const REQUEST: OpenRequest = { kind: "connect", target: { host: "10.0.0.1", port: 10250 }, timeoutMs: 5000, id: "x1" };

/** Writes `bytes` in pieces cut at `cuts`, each arriving on its own. */
async function writeInPieces(stream: Duplex, bytes: Buffer, cuts: readonly number[]): Promise<void> {
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    stream.write(bytes.subarray(from, to));
    from = to;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function raw(json: string, length = Buffer.byteLength(json)): Buffer {
  const head = Buffer.alloc(2);
  head.writeUInt16BE(length);
  return Buffer.concat([head, Buffer.from(json)]);
}

function unexpected(): void {
  assert.fail("nothing was to be told");
}

function code(expected: string): (error: unknown) => boolean {
  return (error) => error instanceof CulvertError && error.code === expected;
}

test("the times of an agent's steps survive the wire, and hostile ones are malformed", () => {
  const answer = { ok: true, address: "10.0.0.1:1", times: { dnsMs: 1.5, dialMs: 0 } } as const;
  assert.deepEqual(parseAnswer(encodeAnswer(answer).subarray(2)), answer);
  for (const times of ['"x"', '{"dnsMs":-1,"dialMs":0}', '{"dnsMs":1e300,"dialMs":0}', "{}"]) {
    assert.throws(() => parseAnswer(Buffer.from(`{"ok":true,"times":${times}}`)), code("internal"));
  }
});

test("the trace of a CONNECT survives the wire; one that is malformed is none, and refuses nothing", () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  assert.deepEqual(parseOpen(encodeOpen({ ...REQUEST, traceparent }).subarray(2)), { ...REQUEST, traceparent });
  for (const wrong of ["1", '""', "[]", `"${"x".repeat(65)}"`]) {
    const { traceparent: read } = parseOpen(Buffer.from(`{"target":"10.0.0.1:1","id":"x","traceparent":${wrong}}`));
    assert.ok(read === undefined || read === "");
  }
  const answer = { ok: true, address: "10.0.0.1:1", traced: true } as const;
  assert.deepEqual(parseAnswer(encodeAnswer(answer).subarray(2)), answer);
});

test("a request survives the wire, whatever the split, and what follows it stays in the stream", async () => {
  const bytes = Buffer.concat([encodeOpen(REQUEST), Buffer.from("first bytes")]);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const [near, far] = duplexPair();
    const reading = readOpen(far, 1_000);
    await writeInPieces(near, bytes, [cut]);
    assert.deepEqual(await reading, REQUEST);
    near.end();
    const rest: Buffer[] = [];
    far.on("data", (chunk: Buffer) => rest.push(chunk));
    await once(far, "end");
    assert.equal(Buffer.concat(rest).toString(), "first bytes", `cut at ${cut}`);
  }
});

test("heads split at any places, byte by byte too, are the same heads", async () => {
  const bytes = encodeAnswer({ ok: true, address: "[fd00::1]:443" });
  const cuts = fc.uniqueArray(fc.nat({ max: bytes.length }), { maxLength: bytes.length });
  await fc.assert(
    fc.asyncProperty(cuts, async (places) => {
      const [near, far] = duplexPair();
      const reading = readAnswer(far, 1_000);
      await writeInPieces(
        near,
        bytes,
        places.sort((a, b) => a - b),
      );
      assert.deepEqual(await reading, { ok: true, address: "[fd00::1]:443" });
    }),
    { numRuns: 50 },
  );
});

test("no listener is left on the stream after the head", async () => {
  const [near, far] = duplexPair();
  const events = ["readable", "end", "error", "close"];
  const before = events.map((event) => far.listenerCount(event));
  near.write(encodeOpen(REQUEST));
  await readOpen(far, 1_000);
  assert.deepEqual(
    events.map((event) => far.listenerCount(event)),
    before,
  );
});

test("a head that never becomes whole is given up at the deadline", async () => {
  const [near, far] = duplexPair();
  near.write(encodeOpen(REQUEST).subarray(0, 7));
  await assert.rejects(readOpen(far, 20), code("internal"));
});

test("a stream that ends inside the head is a lost agent", async () => {
  for (const length of [0, 1, 2, 9]) {
    const [near, far] = duplexPair();
    near.end(encodeOpen(REQUEST).subarray(0, length));
    await assert.rejects(readAnswer(far, 1_000), code("agent_lost"));
  }
});

test("a stream that is destroyed inside the head tells why", async () => {
  const [near, far] = duplexPair();
  const reading = readAnswer(far, 1_000);
  far.destroy(new Error("the session ended"));
  await assert.rejects(reading, /the session ended/);
  near.destroy();
});

test("a head is refused on its length, before its bytes have come", async () => {
  for (const length of [0, MAX_HEAD_BYTES + 1, 0xffff]) {
    const [near, far] = duplexPair();
    near.write(raw("", length));
    await assert.rejects(readOpen(far, 5_000), code("internal"));
  }
});

test("waiting for a head can be stopped", async () => {
  const [near, far] = duplexPair();
  const stop = receiveHead(far, unexpected, unexpected);
  stop();
  near.write(encodeOpen(REQUEST));
  near.end();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(far.listenerCount("readable"), 0);
});

test("hostile bytes never do worse than a CulvertError", () => {
  const json = fc.oneof(fc.uint8Array({ maxLength: 200 }), fc.json().map(Buffer.from), fc.string().map(Buffer.from));
  fc.assert(
    fc.property(json, (bytes) => {
      for (const parse of [parseOpen, parseAnswer]) {
        try {
          parse(Buffer.from(bytes));
        } catch (error) {
          assert.ok(error instanceof CulvertError, String(error));
        }
      }
    }),
  );
});

const REQUESTS: ReadonlyArray<readonly [sentence: string, json: string, expected: string | Partial<OpenRequest>]> = [
  ["kind is connect when it is left out", '{"target":"a:1"}', { kind: "connect" }],
  ["an unknown kind is refused", '{"kind":"probe","target":"a:1"}', "forbidden"],
  ["an unknown field is ignored", '{"target":"a:1","later":{"x":[1]}}', { kind: "connect" }],
  ["a bad target is told as such", '{"target":"a"}', "bad_target"],
  ["a missing target is told as such", "{}", "bad_target"],
  ["an IPv6 target comes without its brackets", '{"target":"[::1]:5"}', { target: { host: "::1", port: 5 } }],
  ["a timeout of days is cut", '{"target":"a:1","timeoutMs":1e12}', { timeoutMs: 300_000 }],
  ["a timeout that is none is refused", '{"target":"a:1","timeoutMs":-1}', "internal"],
  ["an id is one printable line", '{"target":"a:1","id":"a\\nb"}', { id: "a b" }],
  ["times are told where they are asked for", '{"target":"a:1","timed":true}', { timed: true }],
  ["an array is no request", "[]", "internal"],
  ["a number is no request", "7", "internal"],
  ["half a JSON text is no request", '{"target":', "internal"],
  ["__proto__ is a field like any other", '{"__proto__":{"kind":"probe"},"target":"a:1"}', { kind: "connect" }],
];

for (const [sentence, json, expected] of REQUESTS) {
  test(sentence, () => {
    if (typeof expected === "string") assert.throws(() => parseOpen(Buffer.from(json)), code(expected));
    else matchesPart(json, expected);
  });
}

function matchesPart(json: string, expected: Partial<OpenRequest>): void {
  const request: Readonly<Record<string, unknown>> = { ...parseOpen(Buffer.from(json)) };
  for (const [key, value] of Object.entries(expected)) assert.deepEqual(request[key], value);
}

test("an agent may name its own outcomes only; any other becomes internal", () => {
  for (const name of [...Object.keys(OUTCOMES), "constructor", "ok", "made_up"]) {
    const answer = parseAnswer(Buffer.from(JSON.stringify({ error: name, detail: "why" })));
    const may = isOutcomeCode(name) && outcome(name).fromAgent === true;
    assert.equal(answer.ok, false);
    assert.equal(!answer.ok && answer.error, may ? name : "internal");
    const sent = parseAnswer(
      encodeAnswer({ ok: false, error: isOutcomeCode(name) ? name : "internal", detail: "" }).subarray(2),
    );
    assert.equal(!sent.ok && sent.error, may ? name : "internal");
  }
});

test("an agent's text is one printable line of at most 200 bytes", () => {
  const detail = `bad\r\nSet-Cookie: x\u001b[31m ${"y".repeat(3_000)}`;
  const answer = parseAnswer(Buffer.from(JSON.stringify({ error: "dial_refused", detail })));
  assert.ok(!answer.ok);
  assert.match(answer.detail, /^[\x20-\x7e]{1,200}$/);
});

test("an answer that says both, or neither, is malformed or a yes, never a crash", () => {
  assert.deepEqual(parseAnswer(Buffer.from('{"ok":true,"error":"dial_refused"}')), { ok: true });
  for (const json of ["{}", '{"ok":false}', '{"ok":1}', "null", '""']) {
    assert.throws(() => parseAnswer(Buffer.from(json)), code("internal"));
  }
});

test("a malformed head is refused with a sentence of ours, whatever its fields are", () => {
  const wrong = [null, 7, -1, true, "", "x".repeat(300), [], [7], {}, { a: { b: [] } }];
  const heads = wrong.flatMap((value) => [
    value,
    ...["kind", "target", "timeoutMs", "id", "timed", "ok", "error", "detail", "times"].map((field) => ({
      kind: "connect",
      target: "a:1",
      ok: true,
      [field]: value,
    })),
  ]);
  let told = 0;
  for (const parse of [parseOpen, parseAnswer]) {
    for (const head of heads) {
      try {
        parse(Buffer.from(JSON.stringify(head)));
      } catch (error) {
        told++;
        assert.doesNotMatch((error as Error).message, /invalid|expected|received|unrecognized|too (?:small|big)/i);
      }
    }
  }
  assert.ok(told > 30, `${told} faults`);
});

/** A stream from which these bytes come, and then the end. */
function streamOf(bytes: Buffer) {
  const [near, far] = duplexPair();
  near.end(bytes);
  return far;
}

test("hostile bytes never do worse than a CulvertError", async () => {
  const json = fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 200 }).map(Buffer.from), fc.json().map(Buffer.from));
  await fc.assert(
    fc.asyncProperty(json, async (bytes) => {
      const head = Buffer.alloc(2);
      head.writeUInt16BE(bytes.length);
      const [read] = await Promise.allSettled([readOpen(streamOf(Buffer.concat([head, bytes])), 5_000)]);
      assert.ok(read.status === "fulfilled" || read.reason instanceof CulvertError);
    }),
    { numRuns: 100 },
  );
});
