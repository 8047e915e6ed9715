import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import type { LinkCarrier } from "./carrier-cursor.ts";
import { type ControlMessage, parseControl } from "./control.ts";
import { UntrustedLink } from "./inner-pipe.ts";
import { Inbox, welcome } from "./testing/ends.ts";

/** A carrier on which somebody in between says what the test wants. */
class TappedCarrier implements LinkCarrier {
  readonly pendingBytes = 0;
  wholeRecords = (_at: number, most: number): number => most;
  onControl: ((message: ControlMessage) => void) | undefined;
  acknowledged: (() => number | undefined) | undefined;
  start(): void {}
  write(): void {}
  end(): void {}
  close(): void {}
  abandon(): void {}
  sendControl(): void {}
  probe(): void {}

  say(...messages: ControlMessage[]): void {
    for (const message of messages) this.onControl?.(message);
  }
}

function untrusted(askedEveryMs: number) {
  const carrier = new TappedCarrier();
  const link = new UntrustedLink("box", carrier, { replayBytes: 1_000 }, askedEveryMs);
  const heard: ControlMessage[] = [];
  link.watch({ onControl: (message) => heard.push(message) });
  link.start(new Inbox());
  return { carrier, link, heard };
}

const ROTATE = { type: "rotate", reason: "says the box" } as const;

test("a middlebox can neither drain an agent nor welcome it anew", () => {
  const { carrier, heard, link } = untrusted(60_000);
  carrier.say({ type: "drain", retryAfterMs: 86_400_000 }, welcome());
  assert.deepEqual(heard, []);
  assert.equal(link.closed, false);
});

test("a flood of rotate messages is one request now and one later", async () => {
  const { carrier, heard } = untrusted(50);
  const last = { ...ROTATE, reason: "the last" };
  carrier.say(...Array<ControlMessage>(100).fill(ROTATE), last);
  assert.deepEqual(heard, [ROTATE]);
  await until(() => heard.length > 1);
  assert.deepEqual(heard, [ROTATE, last]);
});

test("a flood of numbers of servers is one number now and the last one later", async () => {
  const { carrier, heard } = untrusted(50);
  const count = (count: number) => ({ type: "servers", count }) as const;
  carrier.say(...Array.from({ length: 100 }, (_, index) => count(index + 1)));
  assert.deepEqual(heard, [count(1)]);
  await until(() => heard.length > 1);
  assert.deepEqual(heard, [count(1), count(100)]);
});

test("when the link is over no request is delivered any more", async () => {
  const { carrier, heard, link } = untrusted(20);
  carrier.say(ROTATE, ROTATE);
  link.destroy();
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(heard.length, 1);
});

test("the answer to a resume cannot change how often an end pings", () => {
  const resumed = { type: "resumed", version: 1, received: 7, proof: "p".repeat(43) };
  assert.deepEqual(parseControl(JSON.stringify({ ...resumed, keepaliveMs: 10 })), resumed);
});
