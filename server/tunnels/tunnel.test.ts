import assert from "node:assert/strict";
import { once } from "node:events";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { roundTripsOf } from "../operators/operator-ports.ts";
import { CarrierRecord } from "./carrier-record.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import { openStream, type StreamRequest } from "./open-stream.ts";
import { contextOf } from "./testing/context.ts";
import { fakeAgent } from "./testing/fake-agent.ts";
import { type ConnectedAgent, type Pickable, pick, type Tunnel } from "./tunnel.ts";

/** The tunnel of an agent in this process: it has no session, no link and no windows. */
class MemoryTunnel implements Tunnel {
  readonly agent: ConnectedAgent;
  readonly id = "memory/1";
  readonly protocol = "konnectivity";
  readonly standsStill = false;
  readonly remote = "10.0.0.7:5555";
  readonly connectedAt = new Date();
  readonly carriers = new CarrierRecord();
  readonly pace = { roundMs: undefined, sentPerSecond: undefined, receivedPerSecond: undefined };
  readonly pendingOpens = 0;
  readonly bufferedBytes = 0;
  readonly replayBytes = 0;
  readonly resetForMemory = 0;
  readonly rttMs = 0;
  readonly dialsFail = false;
  readonly suspended = false;
  lastUsed = 0;
  leaving = false;
  closed = false;
  /** Why it takes no streams. */
  refusal: CulvertError | undefined;
  readonly asked: string[] = [];
  readonly #streams = new Set<Duplex>();

  constructor(agentId: string, host: readonly string[] = []) {
    const identifiers = host.length > 0 ? { host } : {};
    const words = { instance: "1", identity: "CN=memory", software: "test", probe: false };
    this.agent = { agentId, ...words, peer: undefined, identifiers };
  }

  get draining(): boolean {
    return this.leaving;
  }

  get streamCount(): number {
    return this.#streams.size;
  }

  /** The target echoes. */
  async open(target: Target): Promise<Duplex> {
    this.asked.push(formatTarget(target));
    if (this.refusal !== undefined) throw this.refusal;
    const [near, far] = duplexPair();
    far.pipe(far);
    this.#streams.add(near);
    near.once("close", () => this.#streams.delete(near));
    return near;
  }

  async roundTrip(): Promise<number> {
    return 3;
  }

  rotate(): void {}

  requireProof(): void {}

  drain(): void {
    this.leaving = true;
  }

  async close(): Promise<void> {
    this.destroy();
  }

  destroy(): void {
    this.closed = true;
    for (const stream of this.#streams) stream.destroy();
  }
}

/** A cluster to which tunnels of any protocol come. */
function cluster() {
  const tunnels = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 50 });
  const context = contextOf({ agentWaitMs: 0 });
  const requests: StreamRequest[] = [];
  return {
    tunnels,
    join: (tunnel: Tunnel) => tunnels.places.reserve(tunnel.agent).join(tunnel),
    open: (host = "10.0.0.1") => {
      const cancellation = new Cancellation<CulvertError>();
      const chosen = { tunnel: undefined, choice: undefined, hop: undefined };
      const request: StreamRequest = { id: "x", deadline: performance.now() + 60_000, cancellation, ...chosen };
      requests.push(request);
      return openStream({ host, port: 443 }, tunnels, request, context);
    },
    /** The agent that each stream was asked of last. */
    chosen: () => requests.map(({ tunnel }) => tunnel?.agent.agentId),
  };
}

async function echoOf(stream: Duplex): Promise<string> {
  stream.write("hello");
  const [echo] = await once(stream, "data");
  return String(echo);
}

test("agents of another protocol share the streams of a cluster with those of yamux, by the fewest streams", async (t) => {
  const { join, open, chosen } = cluster();
  const yamux = fakeAgent({ agentId: "yamux", onTarget: (stream) => stream.pipe(stream) });
  t.after(() => yamux.cut());
  const memory = new MemoryTunnel("memory");
  join(yamux.tunnel);
  join(memory);
  const streams = [await open(), await open(), await open(), await open()];
  assert.deepEqual(chosen().sort(), ["memory", "memory", "yamux", "yamux"]);
  assert.deepEqual([memory.streamCount, yamux.tunnel.streamCount], [2, 2]);
  for (const stream of streams) assert.equal(await echoOf(stream), "hello");
  for (const stream of streams) await once(stream.destroy(), "close");
  for (let times = 0; times < 4; times++) await once((await open()).destroy(), "close");
  assert.deepEqual(chosen().slice(-2).sort(), ["memory", "yamux"], "those without streams take turns");
});

test("an agent of another protocol that drains gets no stream, and one that refuses it is replaced by another", async (t) => {
  const { join, open, chosen } = cluster();
  const yamux = fakeAgent({ agentId: "yamux" });
  t.after(() => yamux.cut());
  const [leaving, full] = [new MemoryTunnel("leaving"), new MemoryTunnel("full")];
  leaving.drain();
  full.refusal = new CulvertError("agent_exhausted", "no descriptors");
  for (const tunnel of [leaving, full]) join(tunnel);
  await assert.rejects(open(), { code: "agent_exhausted" });
  assert.deepEqual([leaving.asked, full.asked], [[], ["10.0.0.1:443"]]);
  join(yamux.tunnel);
  for (const stream of [await open(), await open()]) assert.equal(stream.destroyed, false);
  assert.deepEqual(chosen().slice(1), ["yamux", "yamux"]);
  assert.equal(leaving.asked.length, 0);
});

test("an agent of another protocol is found by what it claims, keeps its id, is measured, and ends", async () => {
  const { tunnels, join, open, chosen } = cluster();
  tunnels.rules = { strategies: ["destHost", "default"], strict: true, claims: undefined };
  const [plain, claiming] = [new MemoryTunnel("plain"), new MemoryTunnel("claiming", ["kubelet"])];
  join(plain);
  const place = tunnels.places.reserve(claiming.agent);
  place.join(claiming);
  for (const host of ["kubelet", "kubelet", "other"]) await open(host);
  assert.deepEqual(chosen(), ["claiming", "claiming", "plain"]);
  assert.throws(
    () => tunnels.places.reserve({ ...claiming.agent, identity: "CN=else" }),
    /belongs to another certificate/,
  );
  assert.equal((await roundTripsOf(tunnels.tunnels())).get(claiming), 3);
  claiming.destroy();
  place.leave();
  await assert.rejects(open("kubelet"), { code: "no_agent" });
});

// ── the best of several tunnels ─────────────────────────────────────────────────────────────────────────────────────

interface Row extends Pickable {
  readonly name: string;
}

const IDLE = { draining: false, suspended: false, closed: false, dialsFail: false, lastUsed: 0 };

function row(name: string, streamCount: number, more: Partial<Pickable> = {}): Row {
  return { name, streamCount, ...IDLE, ...more };
}

const PICKS: ReadonlyArray<readonly [sentence: string, tunnels: readonly Row[], picked: string | undefined]> = [
  ["no tunnel, no pick", [], undefined],
  ["the only tunnel is picked", [row("a", 7)], "a"],
  ["the fewest streams win", [row("a", 3), row("b", 1), row("c", 2)], "b"],
  ["a draining tunnel is never picked", [row("a", 0, { draining: true }), row("b", 9)], "b"],
  ["a closed tunnel is never picked", [row("a", 0, { closed: true }), row("b", 9)], "b"],
  ["a suspended tunnel is never picked", [row("a", 0, { suspended: true }), row("b", 9)], "b"],
  ["nothing is picked when all drain", [row("a", 0, { draining: true })], undefined],
  ["among equals the longest unused wins", [row("a", 1, { lastUsed: 5 }), row("b", 1, { lastUsed: 2 })], "b"],
  ["one whose dials fail comes after all others", [row("a", 0, { dialsFail: true }), row("b", 9)], "b"],
  ["one whose dials fail is better than none", [row("a", 0, { dialsFail: true }), row("b", 0, { closed: true })], "a"],
  [
    "of those whose dials fail, the fewest streams win",
    [row("a", 2, { dialsFail: true }), row("b", 1, { dialsFail: true })],
    "b",
  ],
  ["use counts less than streams", [row("a", 1, { lastUsed: 5 }), row("b", 2, { lastUsed: 2 })], "a"],
];

test("the best tunnel is picked", () => {
  for (const [sentence, tunnels, picked] of PICKS) assert.equal(pick(tunnels)?.name, picked, sentence);
});

test("a second try does not take the same tunnel", () => {
  const [a, b] = [row("a", 0), row("b", 5)];
  assert.equal(pick([a, b], a), b);
  assert.equal(pick([a], a), undefined);
});
