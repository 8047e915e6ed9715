import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { HandshakeLimit } from "./handshake-limit.ts";

function limitOf(t: TestContext, perSecond: number) {
  let nowMs = 0;
  let reached = 0;
  t.mock.method(performance, "now", () => nowMs);
  const limit = new HandshakeLimit(() => reached++);
  limit.set(() => new TokenBucket({ perSecond, burst: perSecond }), "the limit");
  const take = (address: string, times: number): number =>
    Array.from({ length: times }, () => limit.budgetFor(address).take()).filter((taken) => taken).length;
  return { limit, take, reached: () => reached, advance: (ms: number) => (nowMs += ms) };
}

test("clients that have proved nothing share one budget, whatever their addresses", (t) => {
  const it = limitOf(t, 10);
  assert.equal(it.take("192.0.2.1", 100), 10);
  assert.equal(it.take("192.0.2.2", 100), 0);
  assert.equal(it.reached(), 1);
});

test("a network that has proved a credential has a budget that no flood uses up, for ten minutes", (t) => {
  const it = limitOf(t, 10);
  it.limit.proved("2001:db8::7");
  it.take("192.0.2.1", 100);
  assert.equal(it.take("2001:db8::8", 100), 10, "the network of /64, not the address");
  it.advance(599_000);
  it.take("192.0.2.1", 100);
  assert.equal(it.take("2001:db8::7", 1), 1);
  it.advance(2_000);
  it.take("192.0.2.1", 100);
  assert.equal(it.take("2001:db8::7", 1), 0);
});

test("the 1,024 networks with the newest proofs are remembered", (t) => {
  const it = limitOf(t, 1);
  it.limit.proved("192.0.2.1");
  it.advance(1);
  for (let index = 0; index < 1_024; index++) it.limit.proved(`10.0.${index >> 8}.${index & 255}`);
  it.take("198.51.100.1", 10);
  assert.equal(it.take("192.0.2.1", 1), 0);
  assert.equal(it.take("10.0.3.255", 1), 1);
});
