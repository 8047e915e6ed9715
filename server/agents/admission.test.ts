import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { UnauthenticatedSockets } from "../../shared/listen/unauthenticated-sockets.ts";
import { HandshakeDeadline, UnauthenticatedCarriers } from "./admission.ts";

test("a carrier that is not authenticated in time is destroyed, and gives up its place when it has closed", async () => {
  const [socket] = duplexPair();
  const events: string[] = [];
  socket.once("close", () => events.push("closed"));
  const deadline = new HandshakeDeadline(socket, 10);
  deadline.moveTo(() => events.push("over"));
  await until(() => events.includes("over"));
  assert.deepEqual(events, ["closed", "over"]);
  assert.equal(deadline.dropped?.message, "no hello arrived in time", "nobody may say that its peer has cut it");
});

test("an authenticated carrier is not destroyed, and gives up its place once", async () => {
  const [socket] = duplexPair();
  let count = 0;
  const deadline = new HandshakeDeadline(socket, 1);
  deadline.moveTo(() => count++);
  deadline.end();
  const [other] = duplexPair();
  new HandshakeDeadline(other, 1);
  await until(() => other.destroyed); // which had as much time
  assert.equal(socket.destroyed, false);
  socket.destroy();
  await once(socket, "close");
  assert.equal(count, 1);
});

test("the deadline is paused while a token is verified", async () => {
  const [socket] = duplexPair();
  const deadline = new HandshakeDeadline(socket, 10);
  const [other] = duplexPair();
  await deadline.pausedDuring(async () => {
    new HandshakeDeadline(other, 10);
    await until(() => other.destroyed);
  });
  assert.equal(socket.destroyed, false);
  await until(() => socket.destroyed);
});

test("a destroyed carrier that closes later gives up its place at the deadline", async () => {
  const [socket] = duplexPair();
  socket._destroy = () => {}; // it keeps its place (shared/listen/paced-close.ts)
  let isOver = false;
  new HandshakeDeadline(socket, 10).moveTo(() => {
    isOver = true;
  });
  socket.destroy();
  await until(() => isOver);
  assert.equal(socket.closed, false);
});

test("a carrier that has closed before takes no place", async () => {
  const [socket] = duplexPair();
  socket.destroy();
  await once(socket, "close");
  let count = 0;
  new HandshakeDeadline(socket, 60_000).moveTo(() => count++);
  assert.equal(count, 1);
});

// ── places ─────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Carrier {
  readonly deadline: HandshakeDeadline;
  /** The reasons with which it was dropped. */
  readonly reasons: string[];
}

function enter(carriers: UnauthenticatedCarriers, address: string, cluster = "blue"): Carrier {
  const deadline = new HandshakeDeadline(duplexPair()[0], 60_000);
  const reasons: string[] = [];
  carriers.enter(cluster, address, deadline, (reason) => reasons.push(reason));
  return { deadline, reasons };
}

/** Which of them were dropped, by their place. */
function dropped(carriers: readonly Carrier[]): number[] {
  return carriers.flatMap(({ reasons }, index) => (reasons.length === 0 ? [] : [index]));
}

function end(carriers: readonly Carrier[]): void {
  for (const { deadline } of carriers) deadline.end();
}

test("one too many drops the oldest of the address that has most, and a newcomer always gets in", () => {
  const carriers = new UnauthenticatedCarriers(4);
  const flood = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  const honest = [2, 3].map((host) => enter(carriers, `10.0.0.${host}`));
  assert.deepEqual(dropped(flood), [0]);
  const more = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  assert.deepEqual([dropped(flood), dropped(more), dropped(honest)], [[0, 1, 2], [0], []]);
  assert.match(flood[0]?.reasons[0] ?? "", /cluster "blue" .*--max-inner-handshakes.*the oldest was dropped/);
  assert.match(flood[0]?.deadline.dropped?.message ?? "", /\(4429\): too many agents /);
  assert.equal(carriers.sizeOf("blue"), 4);
  end([...flood, ...honest, ...more]);
  assert.equal(carriers.sizeOf("blue"), 0);
});

test("all unauthenticated connections of the process have a bound together, whatever clusters they have come to", () => {
  const all = new UnauthenticatedSockets(6); // half of it
  const carriers = new UnauthenticatedCarriers(4, all);
  const connection = { network: "10.0.0.2", onCrowdedOut: () => assert.fail("its network has one") };
  all.add(connection);
  const flood = ["blue", "green", "red", "white"].map((cluster) => enter(carriers, "10.0.0.1", cluster));
  assert.deepEqual([dropped(flood), all.size, carriers.sizeOf("blue")], [[0, 1], 3, 0]);
  assert.match(flood[0]?.deadline.dropped?.message ?? "", /half of the files/);
  carriers.enter("red", "10.0.0.1", (flood[2] as Carrier).deadline, () => {}); // the next stage of one of them
  assert.deepEqual([dropped(flood), all.size], [[0, 1], 3]);
  end(flood);
  assert.equal(all.size, 1);
});

test("each cluster has its own bound", () => {
  const carriers = new UnauthenticatedCarriers(2);
  const blue = [enter(carriers, "10.0.0.1"), enter(carriers, "10.0.0.1")];
  const green = [1, 2, 3].map(() => enter(carriers, "10.0.0.1", "green"));
  assert.deepEqual([dropped(blue), dropped(green)], [[], [0]]);
  end([...blue, ...green]);
});

test("a carrier gives up its place once, when it goes on to the next stage or ends", async () => {
  const [hellos, handshakes] = [new UnauthenticatedCarriers(4), new UnauthenticatedCarriers(4)];
  const { deadline } = enter(hellos, "10.0.0.1");
  handshakes.enter("blue", "10.0.0.1", deadline, assert.fail);
  assert.deepEqual([hellos.sizeOf("blue"), handshakes.sizeOf("blue")], [0, 1]);
  deadline.end();
  deadline.end();
  assert.equal(handshakes.sizeOf("blue"), 0);
  handshakes.enter("blue", "10.0.0.1", deadline, assert.fail);
  assert.equal(handshakes.sizeOf("blue"), 0, "its deadline had ended before");
});

test("the addresses of one IPv6 network are one source", () => {
  const carriers = new UnauthenticatedCarriers(3);
  const flood = [enter(carriers, "2001:db8::1"), enter(carriers, "2001:db8:0:0:ffff::2")];
  const others = [enter(carriers, "2001:db8:0:1::1"), enter(carriers, "2001:db8:0:2::1")];
  assert.deepEqual([dropped(flood), dropped(others)], [[0], []]);
  end([...flood, ...others]);
});
