import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { openFirst } from "./address-turns.ts";

const NEVER = new AbortController().signal;

/** Never answers, until it is told to stop. */
function silent(_address: string, signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

test("an address that is silent holds the next one up for a quarter of a second, and is given up then", async () => {
  const stream = new PassThrough();
  const ended: string[] = [];
  const begin = performance.now();
  const open = (address: string, signal: AbortSignal) => {
    if (address === "live") return Promise.resolve(stream);
    return silent(address, signal).finally(() => ended.push(address));
  };
  assert.equal(await openFirst(["dead", "live"], open, NEVER), stream);
  assert.ok(performance.now() - begin < 1_000);
  await new Promise(setImmediate);
  assert.deepEqual(ended, ["dead"]);
});

test("an address that fails holds nothing up", async () => {
  const stream = new PassThrough();
  const begin = performance.now();
  const open = (address: string) =>
    address === "live" ? Promise.resolve(stream) : Promise.reject(new Error("refused"));
  assert.equal(await openFirst(["one", "two", "three", "live"], open, NEVER), stream);
  assert.ok(performance.now() - begin < 200);
});

test("where all fail, the last failure is reported", async () => {
  const open = (address: string) => Promise.reject(new Error(`${address} refused`));
  await assert.rejects(openFirst(["one", "two"], open, NEVER), /two refused/);
});

test("an abort ends all of them", async () => {
  const over = new AbortController();
  const opened = openFirst(["one", "two", "three"], silent, over.signal);
  over.abort(new Error("the client has gone"));
  await assert.rejects(opened, /the client has gone/);
});

test("a connection that opens too late is closed", async () => {
  const [quick, late] = [new PassThrough(), new PassThrough()];
  let answerLate = (_stream: PassThrough): void => {};
  const open = (address: string) =>
    address === "quick" ? Promise.resolve(quick) : new Promise<PassThrough>((resolve) => (answerLate = resolve));
  assert.equal(await openFirst(["late", "quick"], open, NEVER), quick);
  answerLate(late);
  await new Promise(setImmediate);
  assert.equal(late.destroyed, true);
  assert.equal(quick.destroyed, false);
});
