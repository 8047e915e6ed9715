import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  BadControlMessage,
  type ControlMessage,
  ControlReader,
  type Hello,
  MAX_CONTROL_BYTES,
  parseControl,
  type Welcome,
} from "./control.ts";
import { parseInnerHello, parseInnerReply } from "./inner-pipe.ts";

const HELLO = { type: "hello", agentId: "a", instance: "1", software: "test", later: { unknown: true } };

test("a hello offers our version or the next one, with inner TLS as well, and no other", () => {
  const forms: Readonly<Record<string, (version: unknown) => unknown>> = {
    direct: (version) => parseControl(JSON.stringify({ ...HELLO, version })),
    outer: (version) => parseControl(JSON.stringify({ type: "hello", version, inner: true, later: [] })),
    inner: (version) => parseInnerHello(JSON.stringify({ ...HELLO, version })),
  };
  for (const [form, parse] of Object.entries(forms)) {
    for (const version of [1, 2]) assert.ok(parse(version), `${form} ${version}`);
    for (const version of [0, 3, 1.5, "1", null, undefined]) {
      assert.throws(() => parse(version), /hello.*: version must be 1 or 2; update/, `${form} ${version}`);
    }
  }
});

const HELLO_OF_US = { ...HELLO, version: 1, cluster: "blue", probe: true };
const WRONG = [null, 7, -1, 1.5, true, "", "\u0000 !", "x".repeat(300), [], ["x"], {}, { a: { b: [] } }];
const RESUMES = [
  { proof: "p" },
  { link: "l", proof: "p".repeat(43), counter: 1 },
  { link: "l", proof: 7, counter: 1, received: 0 },
  { link: "l", proof: "p".repeat(43), counter: 1, received: -1 },
];
const WELCOME = {
  type: "welcome",
  version: 1,
  serverId: "s",
  link: "l",
  key: "k".repeat(43),
  keepaliveMs: 1_000,
  graceMs: 0,
  initialWindow: 65_536,
  freshWindow: 65_536,
  servers: 3,
};
const MESSAGES = [
  { ...HELLO_OF_US, resume: RESUMES[0] },
  { type: "hello", version: 1, inner: true, resume: RESUMES[0] },
  WELCOME,
  { type: "resumed", version: 1, received: 0, proof: "p".repeat(43) },
  { type: "ack", received: 0 },
  { type: "rotate", reason: "old" },
  { type: "drain", retryAfterMs: 0 },
  { type: "servers", count: 2 },
];

test("a malformed message is refused with a sentence of ours, whatever its fields are", () => {
  const told = new Set<string>();
  const tell = (parse: () => unknown) => {
    try {
      parse();
    } catch (error) {
      told.add((error as Error).message);
    }
  };
  for (const message of MESSAGES) {
    for (const field of Object.keys(message)) {
      for (const value of [undefined, ...WRONG, ...RESUMES]) {
        const json = JSON.stringify({ ...message, [field]: value });
        tell(() => parseControl(json));
        tell(() => parseInnerHello(json));
        tell(() => parseInnerReply(json));
      }
    }
  }
  for (const value of WRONG) tell(() => parseInnerHello(JSON.stringify(value)));
  assert.ok(told.size > 50);
  for (const sentence of told)
    assert.doesNotMatch(sentence, /invalid|expected|received:|unrecognized|too (?:small|big)/i);
  for (const sentence of [
    "bad hello message: agentId is missing",
    "bad hello message: agentId must be a text",
    "bad hello message: probe must be true or false",
    "bad hello message: instance must not be empty",
    "bad hello message: agentId has characters or a form that are not allowed",
    "bad hello message: resume.received is missing",
    "bad drain message: retryAfterMs must be at least 0",
    "bad drain message: retryAfterMs must be a whole number",
    "bad inner hello: it must be an object",
  ])
    assert.ok(
      told.has(sentence),
      `${sentence}\n${[...told].filter((each) => each.slice(0, 12) === sentence.slice(0, 12)).join("\n")}`,
    );
});

test("an ack says the same however it is spelled", () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), (received) => {
      const ack = { type: "ack", received };
      assert.deepEqual(parseControl(JSON.stringify(ack)), ack);
      assert.deepEqual(parseControl(JSON.stringify(ack, undefined, 1)), ack);
      assert.deepEqual(parseControl(JSON.stringify({ received, later: true, type: "ack" })), ack);
    }),
  );
});

test("an ack of what is no offset is refused", () => {
  const offsets = ["-1", "1.5", "007", "9007199254740992", "1e300", '"1"', "null", ""];
  for (const received of offsets) {
    assert.throws(() => parseControl(`{"type":"ack","received":${received}}`), BadControlMessage, received);
  }
});

test("a resume that proves nothing is ignored, so that its agent is given a new link", () => {
  for (const resume of [{ link: "l", token: "t".repeat(43), received: 0 }, {}, null, "l", 7]) {
    const hello = parseControl(JSON.stringify({ ...HELLO_OF_US, resume }));
    assert.ok(hello?.type === "hello" && hello.resume === undefined, JSON.stringify(resume));
  }
});

test("identifiers in a hello are lists of short texts, at most 64 each; kinds that are not known are ignored", () => {
  const hello = (identifiers: unknown) => parseControl(JSON.stringify({ ...HELLO, version: 1, identifiers }));
  const most = { host: Array.from({ length: 64 }, () => "h".repeat(253)).slice(0, 20), defaultRoute: true };
  assert.deepEqual(hello({ ...most, zone: ["a"] }), hello(most));
  for (const identifiers of [
    { ipv4: Array.from({ length: 65 }, () => "10.0.0.1") },
    { host: ["h".repeat(254)] },
    { host: [""] },
    { cidr: "10.0.0.0/8" },
    { ipv6: [1] },
    { defaultRoute: "true" },
    ["10.0.0.1"],
  ]) {
    assert.throws(
      () => hello(identifiers),
      /^BadControlMessage: bad hello message: identifiers/,
      JSON.stringify(identifiers),
    );
  }
});

/** A reader of a carrier that is open, with all that comes of it. */
function reading() {
  const violations: string[] = [];
  const messages: ControlMessage[] = [];
  let pings = 0;
  const reader = new ControlReader(undefined, {
    onPing: () => pings++,
    onPong: () => {},
    onViolation: (sentence) => {
      violations.push(sentence);
      reader.stop();
    },
  });
  reader.listener = (message) => void messages.push(message);
  return { push: (text: string) => reader.push(Buffer.from(text)), violations, messages, pings: () => pings };
}

const filled = (unit: string) => unit.repeat(Math.floor((MAX_CONTROL_BYTES - 100) / unit.length));
const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

const EXPENSIVE: Readonly<Record<string, string>> = {
  "arrays in arrays": `{"type":"x","a":${nested(4_000)}}`,
  "numbers in an array": `{"type":"x","a":[${filled("1,")}1]}`,
  "objects in an array": `{"type":"x","a":[${filled('{"a":1},')}1]}`,
  fields: `{"type":"x"${Array.from({ length: 700 }, (_, index) => `,"k${index}":1`).join("")}}`,
};

for (const [name, text] of Object.entries(EXPENSIVE)) {
  test(`a message of many ${name} is refused before it is parsed, although its type is unknown`, () => {
    const { push, violations } = reading();
    assert.ok(text.length <= MAX_CONTROL_BYTES);
    push(text);
    assert.deepEqual(violations, ["a control message has too many values"]);
  });
}

test("a long message of few values is read, and one of an unknown type is ignored", () => {
  const { push, violations, messages } = reading();
  push(JSON.stringify({ type: "x", a: "[".repeat(1_000), b: "b".repeat(6_000) }));
  push(JSON.stringify({ type: "ack", received: 7 }));
  assert.deepEqual([violations, messages], [[], [{ type: "ack", received: 7 }]]);
});

test("more messages than the burst end the carrier", () => {
  const { push, violations, pings } = reading();
  for (let count = 0; count < 150; count++) push('{"type":"ping"}');
  assert.deepEqual(violations, ["too many control messages"]);
  assert.ok(pings() >= 100, `${pings()} pings were answered`);
});

test("a message that only mentions an ack has the rate of the others", () => {
  const { push, violations } = reading();
  for (let count = 0; count < 150; count++) push('{"type":"ping","of":"ack"}');
  assert.deepEqual(violations, ["too many control messages"]);
});

test("acks have a rate of their own, however they are spelled", () => {
  const { push, violations, messages } = reading();
  for (let received = 1; received <= 1_000; received++) push(`{ "received": ${received}, "type": "ack" }`);
  assert.deepEqual([violations, messages.length], [[], 1_000]);
});

test("features are words: a list of anything is no fault, and what is no word or one too many is left out", () => {
  const many = Array.from({ length: 40 }, (_, index) => `feature-${index}`);
  for (const [features, kept] of [
    [undefined, undefined],
    [[], []],
    [
      ["node-streams", "h2"],
      ["node-streams", "h2"],
    ],
    [["", "UPPER", "a b", "x".repeat(33), 7, true, null, { a: 1 }, ["deep"], "last"], ["last"]],
    [many, many.slice(0, 16)],
    ["node-streams", undefined],
    [{ 0: "node-streams", length: 1 }, undefined],
    [null, undefined],
  ] as const) {
    for (const message of [HELLO_OF_US, WELCOME]) {
      const parsed = parseControl(JSON.stringify({ ...message, features })) as Hello | Welcome;
      assert.deepEqual(parsed.features, kept, JSON.stringify(features));
    }
  }
});
