import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { CulvertError, type OutcomeCode, outcome } from "../../shared/outcomes.ts";
import {
  encodePeerAnswer,
  encodePeerOpen,
  parsePeerAnswer,
  parsePeerOpen,
  streamKind,
} from "../../shared/wire/peer-heads.ts";
import {
  encodeAnswer,
  encodeHead,
  encodeOpen,
  MAX_HEAD_BYTES,
  parseAnswer,
  parseOpen,
  receiveHead,
} from "../../shared/wire/stream-head.ts";
import { assertPrintable, attempt, splits, type Target } from "../target.ts";

const LENGTH_BYTES = 2;
/** Codes with which a head may be refused. */
const CODES: readonly OutcomeCode[] = ["bad_target", "forbidden", "internal"];

/** The first message of a stream, both ways: uint16 length and JSON. */
export const streamHead: Target = {
  name: "stream-head",
  maxLength: MAX_HEAD_BYTES + 200,
  seeds: [
    encodeOpen({
      kind: "connect",
      target: { host: "10.0.0.1", port: 10_250 },
      timeoutMs: 4_000,
      id: "c-1",
      timed: true,
    }),
    encodeAnswer({ ok: true, address: "10.0.0.1:10250", times: { dnsMs: 1, dialMs: 2.5 } }),
    encodeAnswer({ ok: false, error: "dial_refused", detail: "refused" }),
    encodePeerOpen({ cluster: "blue", target: { host: "10.0.0.1", port: 443 }, timeoutMs: 4_000, id: "srv-1/a" }),
    encodePeerAnswer({ ok: true, agent: "a", address: "10.0.0.1:443" }),
    encodePeerAnswer({ ok: false, error: new CulvertError("limited", "at its limit", { retryAfterMs: 1_000 }) }),
    Buffer.concat([encodeHead({ kind: "peer", target: "[fd00::1]:1" }), Buffer.from("behind")]),
  ],
  words: [
    '"kind":"connect"',
    '"target":"a:1"',
    '"ok":true',
    '"error":"',
    '"times":{',
    "draining",
    "internal",
    "__proto__",
    "\\n",
    "\\u0000",
  ],
  async run(input) {
    const [, pieces] = splits(input);
    const { json, behind } = await received(pieces);
    const length = input.length < LENGTH_BYTES ? 0 : input.readUInt16BE(0);
    const isWhole = length > 0 && length <= MAX_HEAD_BYTES && input.length >= LENGTH_BYTES + length;
    if (json instanceof Error) {
      assert.ok(json instanceof CulvertError && !isWhole, `${json} of a head that is ${isWhole ? "" : "not "}whole`);
      assertPrintable(json.message, 200);
      return json.message.replace(/\d+/, "n");
    }
    assert.ok(isWhole && json.equals(input.subarray(LENGTH_BYTES, LENGTH_BYTES + length)));
    assert.ok(behind.equals(input.subarray(LENGTH_BYTES + length)), "what follows stays in the stream");
    return [request(json), answer(json), peerRequest(json), peerAnswer(json)].join(" ");
  },
};

interface Received {
  readonly json: Buffer | Error;
  /** The bytes that are left in the stream. */
  readonly behind: Buffer;
}

function received(pieces: readonly Buffer[]): Promise<Received> {
  const stream = new PassThrough();
  return new Promise((resolve) => {
    const done = (json: Buffer | Error): void => {
      const behind: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => behind.push(chunk));
      stream.on("end", () => resolve({ json, behind: Buffer.concat(behind) }));
      stream.resume();
      if (stream.readableEnded) resolve({ json, behind: Buffer.alloc(0) });
    };
    receiveHead(stream, done, done);
    for (const piece of pieces) stream.write(piece);
    stream.end();
  });
}

function request(json: Buffer): string {
  const { value, error } = attempt(() => parseOpen(json), CulvertError);
  if (error !== undefined) return refused(error);
  assert.ok(value.timeoutMs > 0 && value.timeoutMs <= 300_000);
  assertPrintable(value.id, 128);
  const again = parseOpen(encodeOpen(value).subarray(LENGTH_BYTES));
  assert.deepEqual(again, { ...value, timeoutMs: Math.max(1, Math.round(value.timeoutMs)) });
  return `${value.kind} ${value.timed}`;
}

function answer(json: Buffer): string {
  const { value, error } = attempt(() => parseAnswer(json), CulvertError);
  if (error !== undefined) return refused(error);
  assertPrintable(value.ok ? (value.address ?? "") : value.detail, 200);
  assert.deepEqual(parseAnswer(encodeAnswer(value).subarray(LENGTH_BYTES)), value);
  return value.ok ? `ok ${value.times !== undefined}` : value.error;
}

function peerRequest(json: Buffer): string {
  const { value, error } = attempt(() => parsePeerOpen(json), CulvertError);
  if (error !== undefined) return refused(error);
  assert.ok(value.timeoutMs > 0 && value.timeoutMs <= 300_000);
  assertPrintable(value.cluster, 63);
  assertPrintable(value.id, 256);
  return `${streamKind(json)} ${value.timed}`;
}

function peerAnswer(json: Buffer): string {
  const { value, error } = attempt(() => parsePeerAnswer(json), CulvertError);
  if (error !== undefined) return refused(error);
  if (value.ok) return `ok ${value.times !== undefined}`;
  assertPrintable(value.error.message, 1_000);
  assert.notEqual(outcome(value.error.code).http, undefined, "a caller can be answered with it");
  return value.error.code;
}

function refused({ code, message }: CulvertError): string {
  assert.ok(CODES.includes(code), code);
  assertPrintable(message, 300);
  return `${code} ${message.slice(0, 24).replace(/".*|\d+/, "…")}`;
}
