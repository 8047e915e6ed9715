import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeDestinationAnswer, parseDestination } from "../../shared/wire/destination-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { openDestination, type ServerTunnel } from "./open-destination.ts";

const TARGET = { host: "kas", port: 6443 };
const TIMES = { openMs: 400, ackMs: 50 };

/** A tunnel to a server that does this with each stream. */
function tunnelTo(serverId: string, serve: (stream: Stream) => void, suspended = false) {
  const [near, far] = duplexPair();
  const asked: Stream[] = [];
  const onStream = (stream: Stream): void => {
    asked.push(stream.on("error", () => {}));
    serve(stream);
  };
  const server = new Session("server", new DuplexTransport(far), { onStream, onClosed: () => {} });
  const session = new Session("client", new DuplexTransport(near), { onStream: () => {}, onClosed: () => {} });
  let probes = 0;
  const link = { suspended, probe: () => void probes++ };
  const tunnel: ServerTunnel = { serverId, session, link };
  return {
    tunnel,
    asked,
    get probes() {
      return probes;
    },
    [Symbol.dispose]: () => {
      session.destroy();
      server.destroy();
    },
  };
}

const connects = (stream: Stream): void => {
  stream.accept();
  stream.write(encodeDestinationAnswer());
};
const refuses = (code: CulvertError["code"]) => (stream: Stream) => {
  stream.accept();
  stream.end(encodeDestinationAnswer(new CulvertError(code, `no: ${code}`)));
};
const silent = (): void => {};

const refusedAs = (code: string, sentence: RegExp) => (error: unknown) => {
  assert.ok(error instanceof CulvertError);
  assert.equal(error.code, code);
  assert.match(error.message, sentence);
  return true;
};

const open = (...tunnels: readonly { readonly tunnel: ServerTunnel }[]) =>
  openDestination(TARGET, "n/1", () => tunnels.map(({ tunnel }) => tunnel), TIMES);

test("a server is asked for the destination, and its stream is the connection", async () => {
  using one = tunnelTo("s1", connects);
  const { stream, serverId } = await open(one);
  assert.equal(serverId, "s1");
  const head = await new Promise<Buffer>((resolve, reject) => receiveHead(one.asked[0] as Stream, resolve, reject));
  const { target, id, timeoutMs } = parseDestination(head);
  assert.deepEqual({ target, id }, { target: TARGET, id: "n/1" });
  assert.ok(timeoutMs < TIMES.openMs, "the server's timeout comes first");
  stream.destroy();
});

test("a server that shuts down, has too much to do, resets or is lost is left for another one", async () => {
  const ways: ((stream: Stream) => void)[] = [refuses("draining"), refuses("overloaded"), (stream) => stream.reset()];
  for (const serve of ways) {
    using away = tunnelTo("away", serve);
    using there = tunnelTo("there", connects);
    const { stream, serverId } = await open(away, there);
    assert.deepEqual([serverId, away.asked.length], ["there", 1]);
    stream.destroy();
  }
  using lost = tunnelTo("lost", () => lost.tunnel.session.destroy(new Error("cut")));
  using there = tunnelTo("there", connects);
  assert.equal((await open(lost, there)).serverId, "there");
});

test("a silent server is left for another one, and its link is probed", async () => {
  using away = tunnelTo("away", silent);
  using there = tunnelTo("there", connects);
  assert.equal((await open(away, there)).serverId, "there");
  assert.equal(away.probes, 1, "so that its tunnel ends if it is away");
});

test("without another server a silent one has all the time", async () => {
  using slow = tunnelTo("slow", (stream) => void setTimeout(connects, 2 * TIMES.ackMs, stream));
  assert.equal((await open(slow)).serverId, "slow");
  using never = tunnelTo("never", silent);
  await assert.rejects(open(never), refusedAs("server_lost", /server "never" does not respond/));
});

test("a server that comes while a silent one is waited for is asked", async () => {
  using silentOne = tunnelTo("silent", silent);
  using later = tunnelTo("later", connects);
  const tunnels = [silentOne.tunnel];
  setTimeout(() => tunnels.push(later.tunnel), 2.5 * TIMES.ackMs);
  assert.equal((await openDestination(TARGET, "n/1", () => tunnels, TIMES)).serverId, "later");
});

test("a server that took the request and does not answer is not left for another one: it may be connected", async () => {
  using slow = tunnelTo("slow", (stream) => stream.accept());
  using other = tunnelTo("other", connects);
  await assert.rejects(open(slow, other), refusedAs("server_lost", /took the request but did not answer in time/));
  assert.equal(other.asked.length, 0);
});

test("what the server says of the destination is final: no other one is asked", async () => {
  for (const code of ["forbidden", "limited", "dial_refused"] as const) {
    using first = tunnelTo("first", refuses(code));
    using other = tunnelTo("other", connects);
    await assert.rejects(open(first, other), refusedAs(code, new RegExp(`no: ${code}`)));
    assert.equal(other.asked.length, 0);
  }
});

test("a tunnel without a connection is asked last, and the one with the fewest streams first", async () => {
  using suspended = tunnelTo("suspended", connects, true);
  using busy = tunnelTo("busy", connects);
  using idle = tunnelTo("idle", connects);
  await open(busy);
  assert.equal((await open(suspended, busy, idle)).serverId, "idle");
  assert.equal((await open(suspended, busy)).serverId, "busy");
  assert.equal((await open(suspended)).serverId, "suspended");
});

test("without a server the connection is refused at once", async () => {
  await assert.rejects(open(), refusedAs("server_lost", /no server that takes connections of nodes is connected/));
});
