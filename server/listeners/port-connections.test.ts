import assert from "node:assert/strict";
import { once } from "node:events";
import { Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { deferred } from "../../shared/basics/promises.ts";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { ServerMetrics } from "../metrics/server-metrics.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import {
  PortConnections,
  type PortConnectionsOptions,
  type PortHandler,
  WaitingConnections,
} from "./port-connections.ts";

/** A connection after its handshake, from this address. */
function connection(address = "192.0.2.1"): IncomingConnection {
  const socket = new Socket();
  Object.defineProperty(socket, "remoteAddress", { value: address });
  const it = new IncomingConnection(socket);
  it.handedOn(socket);
  return it;
}

function destroyed(all: readonly IncomingConnection[]): boolean[] {
  return all.map(({ socket }) => socket.destroyed);
}

interface Setup extends Partial<PortConnectionsOptions & PortHandler> {
  readonly maxWaiting?: number;
  readonly onDropped?: () => void;
}

function connections({ maxWaiting = 3, onDropped = () => {}, ...more }: Setup = {}): PortConnections {
  const options = { listener: "callers", deadlineMs: 60_000, waiting: new WaitingConnections(100) } as const;
  const unasked = (): void => assert.fail("there is no request");
  const metrics = Object.assign(new ServerMetrics({ processMetrics: false }), { waitingDropped: onDropped });
  return new PortConnections(
    { ...options, ...more },
    {
      ...{ onConnect: unasked, onUpgrade: unasked, onRequest: unasked, onHttp2: unasked, onClientError: unasked },
      ...more,
    },
    contextOf({ headerLimit: 1_024, maxWaitingConnections: maxWaiting }, { metrics }),
  );
}

test("no more wait than may: one too many drops the oldest, and none with a request", async () => {
  let dropped = 0;
  const all = connections({ onDropped: () => dropped++ });
  const [asked, ...silent] = Array.from({ length: 10 }, () => connection());
  assert.ok(asked);
  all.take(asked);
  assert.equal(all.leaveWaiting(asked), true);
  for (const one of silent) {
    all.take(one);
    assert.ok(all.waiting <= 3, `${all.waiting} wait`);
  }
  await turn();
  assert.equal(dropped, 6);
  assert.deepEqual(destroyed(silent), [...Array(6).fill(true), ...Array(3).fill(false)]);
  assert.equal(asked.socket.destroyed, false);
  assert.equal(all.size, 4);
  all.resetAll();
});

test("a connection that closes makes room, and one that is dropped is not late", async () => {
  const late: IncomingConnection[] = [];
  const first = deferred<void>();
  const onLate = (one: IncomingConnection) => {
    late.push(one);
    first.resolve();
  };
  const all = connections({ maxWaiting: 1, deadlineMs: 1, onLate });
  const [closed, dropped, kept] = [connection(), connection(), connection()];
  all.take(closed);
  closed.socket.destroy();
  await turn();
  all.take(dropped);
  all.take(kept);
  assert.deepEqual(destroyed([dropped, kept]), [true, false]);
  await first.promise;
  assert.deepEqual(late, [kept]);
  kept.socket.destroy();
  await all.empty(60_000);
});

test("a connection that is set aside takes no room, is never dropped for another, and keeps its deadline", async () => {
  const late: IncomingConnection[] = [];
  const onLate = (one: IncomingConnection) => {
    late.push(one);
    one.socket.destroy();
  };
  const all = connections({ maxWaiting: 1, deadlineMs: 20, onLate });
  const [verified, first, second] = [connection(), connection(), connection()];
  all.take(verified);
  all.setAside(verified);
  all.take(first);
  all.take(second);
  assert.deepEqual(destroyed([verified, first, second]), [false, true, false]);
  assert.equal(all.waiting, 1);
  assert.equal(all.leaveWaiting(second), true);
  await once(verified.socket, "close");
  assert.deepEqual(late, [verified]);
  second.socket.destroy();
  await all.empty(60_000);
});

test("a connection that is handed over makes room, and is reset and waited for with those that it belongs to", async () => {
  const [port, others] = [connections({ maxWaiting: 1 }), connections()];
  const [one, next] = [connection(), connection()];
  port.take(one);
  port.handOver(one, others);
  port.take(next);
  assert.deepEqual([port.size, port.waiting, others.size, others.waiting], [1, 1, 1, 0]);
  assert.equal(others.leaveWaiting(one), true);
  port.resetAll();
  assert.deepEqual(destroyed([one, next]), [false, true]);
  others.resetAll();
  await others.empty(60_000);
  assert.equal(one.socket.destroyed, true);
});

test("a connection that is set aside counts as one without a request at a drain", () => {
  const all = connections();
  const verified = connection();
  all.take(verified);
  all.setAside(verified);
  all.destroyWaiting();
  assert.equal(verified.socket.destroyed, true);
});

test("only a connection that its client closes before the request is reported as closed early", async () => {
  const early: (string | undefined)[] = [];
  const names = new Map<IncomingConnection, string>();
  const all = connections({ onClosedEarly: (one) => early.push(names.get(one)) });
  const add = (name: string) => {
    const one = connection();
    names.set(one, name);
    all.take(one);
    return one;
  };
  const asked = add("asked");
  all.leaveWaiting(asked);
  asked.socket.destroy();
  all.dismiss(add("dismissed"));
  add("closed").socket.destroy();
  await turn();
  add("waiting at the end");
  all.destroyWaiting();
  add("reset");
  all.resetAll();
  await all.empty(60_000);
  assert.deepEqual(early, ["closed"]);
});

test("all ports together have a bound, and the network that has most loses its oldest, whatever port that came to", async () => {
  const waiting = new WaitingConnections(1);
  const [callers, agents] = [connections({ waiting, maxWaiting: 100 }), connections({ waiting, maxWaiting: 100 })];
  const honest = connection("192.0.2.7");
  callers.take(honest);
  const flood = Array.from({ length: 10 }, () => connection());
  for (const [index, one] of flood.entries()) (index % 2 === 0 ? callers : agents).take(one);
  await turn();
  assert.equal(waiting.size, 4);
  assert.deepEqual([honest.socket.destroyed, callers.waiting + agents.waiting], [false, 4]);
  assert.deepEqual(destroyed(flood), [...Array(7).fill(true), ...Array(3).fill(false)]);
  callers.resetAll();
  agents.resetAll();
});

test("a usual CONNECT is reported without Node's parser where the port wants that, and else by it", async () => {
  const reported: string[] = [];
  const onConnect = () => reported.push("by Node's parser");
  const onUsualConnect = () => reported.push("without it");
  for (const handler of [{ onConnect }, { onConnect, onUsualConnect }]) {
    for (const field of ["Host: a:1", "X: y"]) {
      const [near, far] = duplexPair();
      const one = new IncomingConnection(near as Socket);
      one.handedOn(near as Socket);
      connections(handler).take(one);
      far.write(`CONNECT a:1 HTTP/1.1\r\n${field}\r\n\r\n`);
      await turn();
      near.destroy();
    }
  }
  assert.deepEqual(reported, ["by Node's parser", "by Node's parser", "without it", "by Node's parser"]);
});
