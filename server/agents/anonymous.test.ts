import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { AnonymousCarriers } from "./anonymous.ts";
import { HandshakeTime } from "./handshake-time.ts";

interface Carrier {
  readonly time: HandshakeTime;
  /** What it was told when it was dropped. */
  readonly reasons: string[];
}

function enter(carriers: AnonymousCarriers, address: string, cluster = "blue"): Carrier {
  const time = new HandshakeTime(duplexPair()[0], 60_000);
  const reasons: string[] = [];
  carriers.enter(cluster, address, time, (reason) => reasons.push(reason));
  return { time, reasons };
}

/** Which of them were dropped, by their place. */
function dropped(carriers: readonly Carrier[]): number[] {
  return carriers.flatMap(({ reasons }, index) => (reasons.length === 0 ? [] : [index]));
}

function end(carriers: readonly Carrier[]): void {
  for (const { time } of carriers) time.over();
}

test("one too many drops the oldest of the address that has most, and a newcomer always gets in", () => {
  const carriers = new AnonymousCarriers(4);
  const flood = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  const honest = [2, 3].map((host) => enter(carriers, `10.0.0.${host}`));
  assert.deepEqual(dropped(flood), [0]);
  const more = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  assert.deepEqual([dropped(flood), dropped(more), dropped(honest)], [[0, 1, 2], [0], []]);
  assert.match(flood[0]?.reasons[0] ?? "", /cluster "blue" .*--max-inner-handshakes.*the oldest was dropped/);
  assert.equal(flood[0]?.time.dropped?.closeCode, 4429);
  assert.equal(carriers.sizeOf("blue"), 4);
  end([...flood, ...honest, ...more]);
  assert.equal(carriers.sizeOf("blue"), 0);
});

test("each cluster has its own room", () => {
  const carriers = new AnonymousCarriers(2);
  const blue = [enter(carriers, "10.0.0.1"), enter(carriers, "10.0.0.1")];
  const green = [1, 2, 3].map(() => enter(carriers, "10.0.0.1", "green"));
  assert.deepEqual([dropped(blue), dropped(green)], [[], [0]]);
  end([...blue, ...green]);
});

test("who goes on to the next stage, is known, or is gone gives its place back once", async () => {
  const [hellos, handshakes] = [new AnonymousCarriers(4), new AnonymousCarriers(4)];
  const { time } = enter(hellos, "10.0.0.1");
  handshakes.enter("blue", "10.0.0.1", time, assert.fail);
  assert.deepEqual([hellos.sizeOf("blue"), handshakes.sizeOf("blue")], [0, 1]);
  time.over();
  time.over();
  assert.equal(handshakes.sizeOf("blue"), 0);
  handshakes.enter("blue", "10.0.0.1", time, assert.fail);
  assert.equal(handshakes.sizeOf("blue"), 0, "its time was over before");
});

test("the addresses of one IPv6 network are one source", () => {
  const carriers = new AnonymousCarriers(3);
  const flood = [enter(carriers, "2001:db8::1"), enter(carriers, "2001:db8:0:0:ffff::2")];
  const others = [enter(carriers, "2001:db8:0:1::1"), enter(carriers, "2001:db8:0:2::1")];
  assert.deepEqual([dropped(flood), dropped(others)], [[0], []]);
  end([...flood, ...others]);
});
