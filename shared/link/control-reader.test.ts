import assert from "node:assert/strict";
import { test } from "node:test";
import { type ControlMessage, MAX_CONTROL_BYTES } from "./control.ts";
import { ControlReader } from "./control-reader.ts";

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
