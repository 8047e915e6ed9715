import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { type HandshakeBudget, UNLIMITED } from "./handshake-budget.ts";
import { HandshakeBytes } from "./handshake-bytes.ts";
import type { IncomingConnection } from "./incoming-connection.ts";

/** The byte counts of a connection, and whether its socket is read. */
class FakeConnection {
  readonly raw = {
    bytesRead: 0,
    _handle: {
      fd: 0,
      readStart: (): void => {
        this.isRead = true;
      },
      readStop: (): void => {
        this.isRead = false;
      },
    },
  };
  readonly network: string;
  readonly budget: HandshakeBudget;
  isRead = true;

  constructor(network: string, budget = UNLIMITED) {
    this.network = network;
    this.budget = budget;
  }

  get asConnection(): IncomingConnection {
    return this as unknown as IncomingConnection;
  }
}

function fixture(t: TestContext) {
  const ended: FakeConnection[] = [];
  const handshakes = new HandshakeBytes((connection) => ended.push(connection as unknown as FakeConnection));
  const running = setInterval(() => {}, 1_000); // the looks keep no process alive
  t.after(() => {
    handshakes.stop();
    clearInterval(running);
  });
  const begin = (network: string, budget?: HandshakeBudget): FakeConnection => {
    const connection = new FakeConnection(network, budget);
    handshakes.watch(connection.asConnection);
    return connection;
  };
  return { handshakes, ended, begin };
}

const areRead = (connections: readonly FakeConnection[]): boolean[] => connections.map(({ isRead }) => isRead);

test("four handshakes are read at a time, and another one in its turn", async (t) => {
  const { handshakes, begin } = fixture(t);
  const one = Array.from({ length: 6 }, () => begin("one"));
  assert.deepEqual(areRead(one), [true, true, true, true, false, false]);
  for (const each of one.slice(0, 2)) handshakes.leave(each.asConnection, true);
  await until(() => areRead(one.slice(2)).every((isRead) => isRead));
});

/** Numbers of handshakes by network: with the last of the others, none of them may stay paused. */
const LAST_FOUR = ["AAAB", "ABBB", "AABB", "AABC", "AAAA", "ABCD"];

for (const networks of LAST_FOUR) {
  test(`when four handshakes are left (${networks}), all of them are read`, async (t) => {
    const { handshakes, begin } = fixture(t);
    const others = Array.from({ length: 4 }, () => begin("others"));
    const left = [...networks].map((network) => begin(network));
    for (const each of others) handshakes.leave(each.asConnection, true);
    await until(() => left.every(({ isRead }) => isRead));
  });
}

test("a handshake that ends while nothing is read of it is not read any more", async (t) => {
  const { handshakes, begin } = fixture(t);
  const all = Array.from({ length: 8 }, () => begin("one"));
  const last = all.at(-1) ?? assert.fail();
  const reads = t.mock.method(last.raw._handle, "readStart");
  assert.equal(last.isRead, false);
  handshakes.leave(last.asConnection);
  const [next] = all.slice(4, 5);
  await until(() => next?.isRead === true);
  assert.equal(reads.mock.callCount(), 0);
});

test("those that are read and do not go on pause in their turn for the others", async (t) => {
  const { begin } = fixture(t);
  const all = Array.from({ length: 6 }, () => begin("one"));
  const hadTheirTurn = new Set<FakeConnection>();
  await until(() => {
    const read = all.filter(({ isRead }) => isRead);
    assert.equal(read.length, 4);
    for (const each of read) hadTheirTurn.add(each);
    return hadTheirTurn.size === all.length && areRead(all.slice(0, 2)).includes(false);
  });
});

/** A handshake of its own has its turn at once: it is never behind more than a few of the others. */
async function hasItsTurn(t: TestContext, all: readonly FakeConnection[], last: FakeConnection): Promise<void> {
  const reads = t.mock.method(last.raw._handle, "readStart");
  const ofOthers = all.map(({ raw }) => t.mock.method(raw._handle, "readStart"));
  await until(() => reads.mock.callCount() > 0);
  const before = ofOthers.filter(({ mock }) => mock.callCount() > 0).length;
  assert.ok(before <= 8, `${before} had their turn before`);
}

test("handshakes of networks take turns: hundreds of one network delay no other one", async (t) => {
  const { begin } = fixture(t);
  const all = Array.from({ length: 200 }, () => begin("one"));
  await hasItsTurn(t, all, begin("other"));
});

test("the proven networks of one side of a cluster take turns together, and others do not wait for all of them", async (t) => {
  const { begin } = fixture(t);
  const [blue, red] = ["blue", "red"].map((provenAs) => ({ take: () => true, provenAs }));
  const all = Array.from({ length: 200 }, (_, index) => begin(`network ${index}`, blue));
  await hasItsTurn(t, all, begin("network 0", red));
});

test("what comes in a handshake that is not over counts, and ends those of its network when they owe bytes", async (t) => {
  const { handshakes, ended, begin } = fixture(t);
  const [one, other] = [Array.from({ length: 6 }, () => begin("one")), begin("other")];
  for (const { raw } of [...one.slice(0, 2), other]) raw.bytesRead = 40 * 1024;
  await until(() => ended.length > 0);
  assert.deepEqual(new Set(ended), new Set(one));
  assert.equal(handshakes.mayBegin({ network: "one", budget: UNLIMITED }), false);
  assert.equal(handshakes.mayBegin({ network: "other", budget: UNLIMITED }), true);
});

test("what came in a handshake is given back when its client is accepted", async (t) => {
  const { handshakes, begin } = fixture(t);
  const now = performance.now();
  t.mock.method(performance, "now", () => now);
  for (let count = 0; count < 10; count++) {
    const connection = begin("one");
    connection.raw.bytesRead = 40 * 1024;
    handshakes.leave(connection.asConnection, true);
  }
  assert.equal(handshakes.mayBegin({ network: "one", budget: UNLIMITED }), true);
});
