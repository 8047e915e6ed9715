import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { TokenBuckets } from "../basics/rate-limit.ts";
import { until } from "../basics/testing/wait.ts";
import { type HandshakeBudget, UNLIMITED, WASTE } from "./handshake-budget.ts";
import { HandshakeBytes } from "./handshake-bytes.ts";
import type { IncomingConnection } from "./incoming-connection.ts";

/** What of a connection counts here, and whether its socket is read. */
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

test("four handshakes of a network are read at a time, and the oldest of the others when one of them is over", (t) => {
  const { handshakes, begin } = fixture(t);
  const one = Array.from({ length: 6 }, () => begin("one"));
  assert.deepEqual(areRead(one), [true, true, true, true, false, false]);
  assert.equal(begin("other").isRead, true);
  handshakes.leave(one[2]?.asConnection ?? assert.fail(), true);
  assert.deepEqual(areRead(one), [true, true, true, true, true, false]);
});

test("a handshake that ends while nothing is read of it is read again, so that its connection can close", (t) => {
  const { handshakes, begin } = fixture(t);
  const last = Array.from({ length: 5 }, () => begin("one")).at(-1) ?? assert.fail();
  assert.equal(last.isRead, false);
  handshakes.leave(last.asConnection);
  assert.equal(last.isRead, true);
});

test("those that are read and do not go on pause in their turn for the others of their network", async (t) => {
  const { begin } = fixture(t);
  const all = Array.from({ length: 6 }, () => begin("one"));
  const hadTheirTurn = new Set<FakeConnection>();
  await until(() => {
    const read = all.filter(({ isRead }) => isRead);
    assert.equal(read.length, 4);
    for (const each of read) hadTheirTurn.add(each);
    return hadTheirTurn.size === all.length && all[0]?.isRead === true && all[5]?.isRead === false;
  });
});

test("the proven networks of one side of a cluster take turns together, and no others wait for them", (t) => {
  const { begin } = fixture(t);
  const [blue, red] = [1, 2].map(() => ({ take: () => true, isProven: true, waste: new TokenBuckets(WASTE) }));
  const ofBlue = Array.from({ length: 6 }, (_, index) => begin(`network ${index}`, blue));
  assert.deepEqual(areRead(ofBlue), [true, true, true, true, false, false]);
  assert.deepEqual(areRead([begin("network 0", red), begin("network 0")]), [true, true]);
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
