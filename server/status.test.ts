import assert from "node:assert/strict";
import { test } from "node:test";
import { type Condition, readiness } from "./status.ts";

const NOW = new Date("2026-06-01T00:00:00Z");
const CERTIFICATE = { name: "agents", notAfter: new Date("2026-07-01T00:00:00Z"), problem: undefined };
const WELL: Condition = {
  listeners: [{ name: "agents", up: true }],
  certificates: [CERTIFICATE],
  warnings: [],
  draining: false,
  agents: 0,
  readyNeedsAgent: false,
};

const TABLE: ReadonlyArray<readonly [sentence: string, change: Partial<Condition>, failed: string[], says?: RegExp]> = [
  ["a server without agents is ready", {}, []],
  ["unless it was told to need one", { readyNeedsAgent: true }, ["agents"], /0 connected/],
  ["with an agent it is ready then", { readyNeedsAgent: true, agents: 1 }, []],
  ["a draining server is not ready", { draining: true }, ["not-draining"]],
  [
    "a listener that is not open is named",
    { listeners: [{ name: "callers", up: false }] },
    ["listeners"],
    /callers not open/,
  ],
  [
    "an expired certificate is a configuration that does not work",
    { certificates: [{ ...CERTIFICATE, notAfter: NOW }] },
    ["configuration"],
    /agents expired on 2026-06-01/,
  ],
  [
    "a broken new certificate is told, and sends nobody away while the old one works",
    { certificates: [{ ...CERTIFICATE, problem: "the key does not belong to it" }] },
    [],
    /agents: the key does not belong/,
  ],
  ["a warning is told", { warnings: ["mind the gap"] }, [], /mind the gap/],
];

for (const [sentence, change, failed, says] of TABLE) {
  test(sentence, () => {
    const checks = readiness({ ...WELL, ...change }, NOW);
    assert.deepEqual(
      checks.filter(({ ok }) => !ok).map(({ name }) => name),
      failed,
    );
    if (says !== undefined) assert.match(checks.map(({ detail }) => detail).join("\n"), says);
  });
}
