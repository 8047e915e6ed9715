import assert from "node:assert/strict";
import { type AgentIdentifiers, canonicalIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { BadControlMessage, MAX_CONTROL_BYTES, parseControl } from "../../shared/link/control.ts";
import { encodeInner, parseInnerHello, parseInnerReply, splitInner } from "../../shared/link/inner-pipe.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { attempt, type Target } from "../target.ts";

const SECRET = "t".repeat(43);
const AGENT = { version: 1, agentId: "a-1", instance: "i", software: "culvert/1" };
const WINDOWS = { keepaliveMs: 20_000, graceMs: 30_000, initialWindow: 65_536, freshWindow: 262_144 };
const HELLO = { type: "hello", ...AGENT };
const WELCOME = { type: "welcome", version: 1, serverId: "s", link: "s.1", key: SECRET, ...WINDOWS };

/** The text messages of a carrier, and the same words inside inner TLS: uint16 length and JSON. */
export const handshake: Target = {
  name: "handshake",
  maxLength: MAX_CONTROL_BYTES,
  seeds: [
    { ...HELLO, cluster: "blue", probe: true, resume: { link: "s.1", proof: SECRET, counter: 7, received: 9 } },
    {
      ...HELLO,
      identifiers: { ipv4: ["::ffff:1.2.3.4"], host: ["A.b."], cidr: ["10.1.0.0/8", "::/0"], defaultRoute: true },
    },
    { type: "hello", version: 1, inner: true, resume: { link: "s.1", proof: SECRET, counter: 1, received: 0 } },
    { ...HELLO, bearer: "x.y.z", renews: "s.1" },
    WELCOME,
    { type: "resumed", version: 1, received: 0, proof: SECRET },
    { type: "renewed" },
    { type: "refused", status: 403, closeCode: 4403, reason: "no", retryAfterMs: 5 },
    { type: "ping" },
    { type: "ack", received: 4_096 },
    { type: "rotate", reason: "r" },
    { type: "drain", retryAfterMs: 3 },
  ].map((message) => Buffer.from(JSON.stringify(message))),
  words: [
    ...Object.keys({
      ...WELCOME,
      ...HELLO,
      inner: 1,
      resume: 1,
      proof: 1,
      counter: 1,
      received: 1,
      bearer: 1,
      renews: 1,
      identifiers: 1,
      ipv6: 1,
      cidr: 1,
    }),
  ]
    .map((key) => `"${key}":`)
    .concat([
      '"__proto__":{',
      '"constructor":',
      "null",
      "1e400",
      "-0",
      "9007199254740993",
      "{",
      "}",
      "[",
      '\\"',
      "\\u0000",
      "\\ud800",
      ",",
    ]),
  run(input) {
    const text = input.toString("utf8");
    const words = [control(text), inner(text), parts(input)];
    assert.deepEqual(Object.keys(Object.prototype), [], "nothing is put into all objects");
    return words.join(" ");
  },
};

function control(text: string): string {
  const { value, error } = attempt(() => parseControl(text), BadControlMessage);
  if (error !== undefined) return sentence(error);
  if (value === undefined) return "unknown";
  // As text, because a resume without a proof is read as `undefined`, which JSON does not have.
  const written = JSON.stringify(value);
  assert.equal(JSON.stringify(parseControl(written)), written);
  if (value.type === "hello" && "identifiers" in value && value.identifiers !== undefined) claims(value.identifiers);
  return value.type;
}

/** The canonical form of identifiers is bounded, and is its own canonical form. */
function claims(given: AgentIdentifiers): void {
  const { value } = attempt(() => canonicalIdentifiers(given), Error);
  if (value === undefined) return;
  assert.deepEqual(canonicalIdentifiers(value), value);
  assert.ok(Buffer.byteLength(JSON.stringify(value)) <= 4_096);
}

function inner(text: string): string {
  const hello = attempt(() => parseInnerHello(text), Error);
  if (hello.error === undefined) assert.deepEqual(again(hello.value, parseInnerHello), hello.value);
  const answer = attempt(() => answerOf(text), Error);
  if (answer.error !== undefined) return sentence(answer.error);
  if (answer.value instanceof LinkRefused) return "refused";
  assert.deepEqual(again(answer.value, parseInnerReply), answer.value);
  return answer.value.type;
}

/** A refusal is one of the answers. */
function answerOf(text: string): ReturnType<typeof parseInnerReply> | LinkRefused {
  try {
    return parseInnerReply(text);
  } catch (error) {
    if (error instanceof LinkRefused) return error;
    throw error;
  }
}

function again<T extends Parameters<typeof encodeInner>[0]>(words: T, parse: (json: string) => T): T {
  const split = splitInner(encodeInner(words));
  assert.equal(split?.rest.length, 0);
  return parse(split.json);
}

/** The bytes as length and JSON: nothing until the last one is there. */
function parts(input: Buffer): string {
  const split = splitInner(input);
  const end = input.length < 2 ? 2 : 2 + input.readUInt16BE(0);
  assert.equal(split !== undefined, input.length >= end);
  if (split === undefined) return "more";
  assert.equal(split.json, input.toString("utf8", 2, end));
  assert.ok(split.rest.equals(input.subarray(end)));
  return "whole";
}

function sentence({ message }: Error): string {
  assert.ok(message.length <= 1_000, `${message.length} characters are too many for a sentence`);
  return message.replace(/["'`].*["'`]|\d+/g, "…");
}
