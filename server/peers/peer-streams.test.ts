import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { encodeCarrier, parsePeerAnswer } from "../../shared/wire/peer-heads.ts";
import { encodeHead, receiveHead } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { pair } from "../../shared/yamux/testing/sessions.ts";
import { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { CarriedFacts, TakeCarried } from "../tunnels/links.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import type { FromPeer } from "./accepted-peers.ts";
import { MAX_FROM_ONE, serveCarried } from "./peer-streams.ts";

const IDENTITY = { o: [], dns: [], uri: [], serial: "01", fingerprint256: "AA", notAfter: new Date(), chain: [] };

interface Taken extends CarriedFacts {
  readonly via: string;
  readonly stream: Duplex;
}

/** A peer that opens streams, and the connections that are taken from it. */
function carriedBy(
  serverId: string,
  { carried = 0, refuse, tunnels }: { carried?: number; refuse?: CulvertError; tunnels?: ClusterTunnels } = {},
) {
  const taken: Taken[] = [];
  const takeCarried: TakeCarried = (stream, facts, via) => {
    if (refuse !== undefined) throw refuse;
    taken.push({ ...facts, via, stream });
  };
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const log = createLogger({ level: "warn", format: "json", name: "test", destination });
  const served = { requireTarget: () => {}, requireAdmission: () => {}, requireDestination: () => {}, pace: () => 0 };
  const clusters: ServerContext["clusters"] = {
    get: (name) => (tunnels !== undefined && name === "blue" ? { tunnels, ...served } : undefined),
    reachedBy: () => undefined,
  };
  const context = contextOf({}, { log, clusters });
  return {
    taken,
    lines,
    ...linkTo(takeCarried, context, { serverId, remote: "10.0.0.2:1", identity: IDENTITY, carried }),
  };
}

function linkTo(takeCarried: TakeCarried, context: ServerContext, from: FromPeer) {
  const { client, server } = pair();
  const open = async (...bytes: readonly Buffer[]): Promise<{ stream: Stream; answer: Promise<Buffer> }> => {
    const known = server.accepted.length;
    const stream = client.session.open(bytes[0]);
    stream.on("error", () => {});
    for (const more of bytes.slice(1)) stream.write(more);
    await until(() => server.accepted.length > known);
    const far = server.accepted[known];
    if (far === undefined) throw new Error("no stream");
    far.on("error", () => {});
    receiveHead(
      far,
      (head) => serveCarried(far, head, from, takeCarried, context),
      () => {},
    );
    const answer = new Promise<Buffer>((resolve, reject) => receiveHead(stream, resolve, reject));
    answer.catch(() => {});
    return { stream, answer };
  };
  return { open };
}

const REQUEST = { cluster: "blue", address: "2001:db8::7", port: 40_000, chain: [] };

test("a connection is taken with its facts when its certificates are whole, and what follows is its own", async () => {
  const peer = carriedBy("srv-b");
  const chain = [Buffer.alloc(900, 1), Buffer.alloc(31_000, 2)];
  const head = encodeCarrier({ ...REQUEST, chain: chain.map(({ length }) => length) });
  const { stream, answer } = await peer.open(head, ...chain);
  assert.equal(parsePeerAnswer(await answer).ok, true);
  const [taken] = peer.taken;
  assert.deepEqual(taken?.chain, chain);
  assert.deepEqual(
    [taken?.cluster, taken?.source, taken?.via],
    ["blue", { address: "2001:db8::7", port: 40_000 }, "srv-b"],
  );
  const read: string[] = [];
  taken?.stream.on("data", (piece: Buffer) => read.push(String(piece))).resume();
  stream.write("GET / HTTP/1.1");
  await until(() => read.join("") === "GET / HTTP/1.1");
});

test("what an agent sends over another server is charged to its cluster, and not to all that share the link", async () => {
  const tunnels = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 1, drainTimeoutMs: 0 });
  const { memory } = tunnels;
  const { open, taken } = carriedBy("srv-b", { tunnels });
  const { stream, answer } = await open(encodeCarrier(REQUEST));
  await answer;
  stream.write(Buffer.alloc(10_000)); // nobody reads it
  await until(() => memory.held === 10_000);
  taken[0]?.stream.destroy();
  await until(() => memory.held === 0);
});

test("what is no such request is refused with a code, and nothing is taken", async () => {
  const table: [head: Buffer, code: string, sentence: RegExp][] = [
    [encodeHead({ kind: "carrier" }), "internal", /request is malformed/],
    [encodeHead({ kind: "carrier", hops: 2, ...REQUEST }), "forbidden", /one other server, not by 2/],
    [encodeHead({ kind: "carrier", hops: 1, ...REQUEST, port: 65_536 }), "internal", /malformed/],
    [encodeHead({ kind: "carrier", hops: 1, ...REQUEST, cluster: "" }), "internal", /malformed/],
    [encodeCarrier({ ...REQUEST, chain: [32_768, 1] }), "forbidden", /longer than 32 KiB/],
    [encodeCarrier({ ...REQUEST, chain: Array.from({ length: 11 }, () => 1) }), "forbidden", /longer than 32 KiB/],
  ];
  for (const [head, code, sentence] of table) {
    const peer = carriedBy("srv-b");
    const answer = parsePeerAnswer(await (await peer.open(head)).answer);
    assert.ok(!answer.ok, String(sentence));
    assert.equal(answer.error.code, code);
    assert.match(answer.error.message, sentence);
    assert.deepEqual([peer.taken.length, peer.lines.length], [0, 1]);
  }
  const draining = carriedBy("srv-b", { refuse: new CulvertError("draining", "this server is shutting down") });
  const answer = parsePeerAnswer(await (await draining.open(encodeCarrier(REQUEST))).answer);
  assert.deepEqual(!answer.ok && [answer.error.code, answer.error.message], [
    "draining",
    "this server is shutting down",
  ]);
});

test("a peer that sends more than its certificates before the answer loses the stream", async () => {
  const peer = carriedBy("srv-b");
  const { answer } = await peer.open(encodeCarrier({ ...REQUEST, chain: [4] }), Buffer.alloc(5));
  await assert.rejects(answer);
  assert.equal(peer.taken.length, 0);
});

test("one link carries a limited number of connections here at once, and each that ends frees its place", async () => {
  const peer = carriedBy("srv-b", { carried: MAX_FROM_ONE - 1 });
  const first = await peer.open(encodeCarrier(REQUEST));
  assert.equal(parsePeerAnswer(await first.answer).ok, true);
  const second = parsePeerAnswer(await (await peer.open(encodeCarrier(REQUEST))).answer);
  assert.ok(!second.ok);
  assert.match(second.error.message, /server "srv-b" carries 16384 connections here, the limit/);
  first.stream.destroy();
  await until(() => peer.taken[0]?.stream.destroyed === true);
  assert.equal(parsePeerAnswer(await (await peer.open(encodeCarrier(REQUEST))).answer).ok, true);
});
