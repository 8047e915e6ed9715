import assert from "node:assert/strict";
import { after, test } from "node:test";
import { readProxyHeader } from "../shared/listen/preface.ts";
import { Coverage } from "./coverage.ts";
import { Fuzzer } from "./fuzzer.ts";
import { mutate } from "./mutate.ts";
import { Random } from "./random.ts";
import { SharedInput } from "./shared-input.ts";
import { shrink } from "./shrink.ts";
import type { Target } from "./target.ts";

const MAX_LENGTH = 200;

// Started before the code that is to be covered has run.
const coverage = new Coverage(/\/shared\/listen\//);
after(() => coverage.stop());

/** Fails for a whole header of version 1, which no seed comes near. */
const planted: Target = {
  name: "planted",
  maxLength: MAX_LENGTH,
  seeds: [],
  words: ["PROXY ", "TCP4", "UNKNOWN", "\r\n"],
  run(input) {
    const reading = readProxyHeader(input);
    if (reading.state === "read" && input[0] === 0x50) throw new Error("planted");
    return reading.state;
  },
};

function fuzzerOf(target: Target): Fuzzer {
  return new Fuzzer(target, { seed: 7, corpus: [], shared: SharedInput.of(MAX_LENGTH), coverage });
}

test("code that is reached leads on to what lies behind it, and what is found is as short as can be", async () => {
  const fuzzer = fuzzerOf(planted);
  assert.equal(await fuzzer.begin(), undefined);
  let finding = await fuzzer.batch();
  for (let batches = 1; finding === undefined && batches < 200; batches++) finding = await fuzzer.batch();
  assert.equal(finding?.error.message, "planted");
  assert.equal(String(finding.input), "PROXY UNKNOWN\r\n");
  assert.ok(fuzzer.found.length > 2, "the steps on the way there are worth keeping");
});

test("more blocks of code than the input is worth are a finding, without a clock", async () => {
  const target: Target = {
    ...planted,
    bounds: { steps: { fixed: 100, perByte: 1 } },
    run: () => {
      for (let count = 0; count < 200; count++) readProxyHeader(Buffer.from("PROXY UNKNOWN\r\n"));
      return "";
    },
  };
  const fuzzer = fuzzerOf(target);
  await fuzzer.begin();
  const finding = await fuzzer.batch();
  assert.equal(finding?.error.name, "TooExpensive");
});

test("changed inputs follow from the seed and are never too long", () => {
  const changed = (seed: number): Buffer[] => {
    const random = new Random(seed);
    const inputs: Buffer[] = [Buffer.from("some input")];
    const options = { random, words: [Buffer.from("word")], maxLength: 30, other: () => random.pick(inputs) };
    for (let count = 0; count < 500; count++) inputs.push(mutate(random.pick(inputs), options));
    return inputs;
  };
  assert.deepEqual(changed(1), changed(1));
  assert.notDeepEqual(changed(1), changed(2));
  assert.ok(changed(1).every(({ length }) => length <= 30));
});

test("an input is shrunk to what matters in it", async () => {
  const least = await shrink(Buffer.from("aaaaXbbbbbbbbYcc"), async (input) => /X.*Y/.test(String(input)));
  assert.equal(String(least), "XY");
});
