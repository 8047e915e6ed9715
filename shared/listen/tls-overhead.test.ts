import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { TlsOverhead, wastedBytes } from "./listeners.ts";

for (const [what, raw, payload, wasted] of [
  ["whole records waste nothing", 16_406, 16_384, 0],
  ["a key press in a record of its own wastes nothing", 23, 1, 0],
  ["records without payload are wasted", 27_000, 0, 27_000],
  ["padding is wasted but for a record's worth", 16_406, 1, 16_278],
] as const) {
  test(what, () => assert.equal(wastedBytes(raw, payload), wasted));
}

/** A socket that only counts. */
const counting = () => Object.assign(new EventEmitter(), { bytesRead: 0 }) as unknown as Socket & { bytesRead: number };

test("a connection that wastes more than its budget is reported once, others are not", async () => {
  const overhead = new TlsOverhead();
  const [honest, flooding] = [counting(), counting()];
  const payload = counting();
  let floods = 0;
  const running = setInterval(() => {}, 1_000); // the looks keep no process alive
  try {
    const ended = new Promise<void>((resolve) => {
      overhead.watch(flooding, counting(), () => {
        floods++;
        resolve();
      });
    });
    overhead.watch(honest, payload, () => assert.fail("an honest connection was reported"));
    [honest.bytesRead, payload.bytesRead] = [10_000_000, 9_000_000];
    flooding.bytesRead = 200_000;
    await ended;
    flooding.bytesRead = 400_000;
    flooding.emit("close");
    assert.equal(floods, 1);
  } finally {
    overhead.stop();
    clearInterval(running);
  }
});

test("a flood among thousands of connections is found, one part of them after the other", async () => {
  const overhead = new TlsOverhead();
  const running = setInterval(() => {}, 1_000);
  try {
    for (let count = 0; count < 1_000; count++) overhead.watch(counting(), counting(), () => assert.fail("honest"));
    const flooding = counting();
    const ended = new Promise<void>((resolve) => overhead.watch(flooding, counting(), resolve));
    flooding.bytesRead = 200_000;
    await ended;
  } finally {
    overhead.stop();
    clearInterval(running);
  }
});
