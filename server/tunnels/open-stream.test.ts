import assert from "node:assert/strict";
import { once } from "node:events";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { Cancellation, deferred } from "../../shared/basics/promises.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError, type OutcomeCode } from "../../shared/outcomes.ts";
import { Claims } from "../clusters/routing-rules.ts";
import { ServerMetrics } from "../metrics/server-metrics.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import { openStream, type StreamRequest } from "./open-stream.ts";
import type { PeerFinder, ServerHop } from "./peer-finder.ts";
import { contextOf } from "./testing/context.ts";
import { type FakeAgentOptions, fakeAgent } from "./testing/fake-agent.ts";

const TARGET = { host: "10.0.0.1", port: 443 };
const RESERVED = new Claims([{ identities: ["CN=a"], hosts: ["10.0.0.1"], cidrs: [], defaultRoute: false }]);
const OPTIONS = {
  connectTimeoutMs: 5_000,
  dialTimeoutMs: 1_000,
  agentAckTimeoutMs: 1_000,
  agentWaitMs: 0,
  maxPendingConnects: 10,
};

/** A directory that names as many holders as anybody asks for; each is asked, and answers with this code. */
function world(strict: boolean, code: OutcomeCode = "no_agent", agentWaitMs = 0) {
  const cluster = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 50 });
  cluster.rules = { strategies: ["destHost", "default"], strict, claims: RESERVED };
  const asked: string[] = [];
  const hopTo = (serverId: string): ServerHop => ({
    serverId,
    agent: undefined,
    open: async () => {
      asked.push(serverId);
      throw new CulvertError(code, `${serverId} says ${code}`);
    },
  });
  const peers: { find: PeerFinder["find"]; trouble: PeerFinder["trouble"] } = {
    find: async (_cluster, except = []) => hopTo(`srv-${except.length + 1}`),
    trouble: () => undefined,
  };
  const cancellation = new Cancellation<CulvertError>();
  let pending = 0;
  const metrics = Object.assign(new ServerMetrics({ processMetrics: false }), {
    pendingOpens: (delta: number) => {
      pending += delta;
    },
  });
  const context = contextOf({ ...OPTIONS, agentWaitMs }, { metrics, peers: () => peers });
  const open = (timeoutMs = 5_000, more: Pick<StreamRequest, "onlyHere"> = {}): Promise<Duplex> =>
    openStream(
      TARGET,
      cluster,
      {
        id: "x",
        deadline: performance.now() + timeoutMs,
        cancellation,
        tunnel: undefined,
        choice: undefined,
        hop: undefined,
        ...more,
      },
      context,
    );
  return { asked, open, cluster, cancellation, peers, pending: () => [pending, cluster.pendingConnects] };
}

/** The directory names this number of holders; when it is asked for another one it says nothing. */
function silentAfter(named: number, made: ReturnType<typeof world>) {
  const asked = deferred();
  const { find } = made.peers;
  made.peers.find = (cluster, except = []) => {
    if (except.length < named) return find(cluster, except);
    asked.resolve();
    return new Promise(() => {});
  };
  return { ...made, silence: asked.promise };
}

/** Connects an agent here. */
function connect(cluster: ClusterTunnels, options: FakeAgentOptions = {}): void {
  const { agentId = "a" } = options;
  const { tunnel } = fakeAgent(options);
  cluster.places.reserve({ agentId, instance: "1", identity: "CN=agent" }).join(tunnel);
}

test("a claimed target is asked of four other servers at most, and the caller reads what the last one says", async () => {
  const { asked, open, pending } = world(true);
  const opening = open();
  assert.deepEqual(pending(), [1, 1]);
  await assert.rejects(opening, { message: "srv-4 says no_agent" });
  assert.deepEqual(pending(), [0, 0]);
  assert.deepEqual(asked, ["srv-1", "srv-2", "srv-3", "srv-4"]);
});

test("where every agent of the cluster may be asked, a second server is the last one", async () => {
  const { asked, open } = world(false);
  await assert.rejects(open(), { message: "srv-2 says no_agent" });
  assert.deepEqual(asked, ["srv-1", "srv-2"]);
});

test("a server that has an agent of the claim, which fails, ends the search", async () => {
  const { asked, open } = world(true, "dial_refused");
  await assert.rejects(open(), { message: "srv-1 says dial_refused" });
  assert.deepEqual(asked, ["srv-1"]);
});

test("when the time of a CONNECT is over no other agent is asked", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 1_000;
  t.mock.method(performance, "now", () => now);
  const { open, cluster } = world(false);
  const asked: string[] = [];
  for (const agentId of ["one", "other"]) connect(cluster, { agentId, onStream: () => asked.push(agentId) });
  const opening = open(500);
  await until(() => asked.length === 1);
  now += 500;
  t.mock.timers.tick(500);
  await assert.rejects(opening, { code: "agent_timeout" });
  assert.equal(asked.length, 1);
});

test("a stream at another server counts for its cluster until it has closed", async () => {
  const { open, cluster, peers } = world(false);
  const [stream] = duplexPair();
  peers.find = async () => ({ serverId: "srv-1", agent: undefined, open: async () => stream });
  await open();
  assert.equal(cluster.hopStreams, 1);
  stream.destroy();
  await once(stream, "close");
  assert.equal(cluster.hopStreams, 0);
});

test("while the directory is asked, an agent that comes here has the CONNECT", { timeout: 60_000 }, async () => {
  const { open, cluster } = silentAfter(0, world(false));
  const opening = open(600_000);
  connect(cluster);
  (await opening).destroy();
});

test("an agent that comes here before the directory is asked again has the CONNECT", { timeout: 60_000 }, async () => {
  const { open, cluster, peers } = world(false, "no_agent", 600_000);
  let questions = 0;
  peers.find = async () => {
    questions++;
    setImmediate(() => connect(cluster));
    return undefined;
  };
  (await open(600_000)).destroy();
  assert.equal(questions, 1);
});

test("a caller without an agent reads why other servers cannot be found, after one question if it does not wait", async () => {
  const { open, peers } = world(false);
  let questions = 0;
  peers.find = async () => {
    questions++;
    return undefined;
  };
  peers.trouble = () => "the directory does not answer";
  await assert.rejects(open(), { code: "no_agent", message: /^no agent .*; the directory does not answer$/ });
  assert.equal(questions, 1);
});

test("a directory that says nothing holds a CONNECT until its deadline, or until its caller leaves", {
  timeout: 60_000,
}, async () => {
  const full: FakeAgentOptions = { answer: () => ({ ok: false, error: "agent_exhausted", detail: "no descriptors" }) };
  for (const [before, code, named, agent, timeoutMs] of [
    ["nobody", "no_agent", 0, undefined, 50],
    ["two servers without an agent of the claim", "no_agent", 2, undefined, 50],
    ["an agent here that takes nothing", "agent_exhausted", 0, full, 500],
  ] as const) {
    const make = () => {
      const made = silentAfter(named, world(named > 0));
      if (agent !== undefined) connect(made.cluster, agent);
      return made;
    };
    await assert.rejects(make().open(timeoutMs), { code }, before);
    const { open, cancellation, silence } = make();
    const opening = open(600_000);
    await silence;
    cancellation.cancel(new CulvertError("caller_gone", "the caller left"));
    await assert.rejects(opening, { code: "caller_gone" }, before);
  }
});

test("a CONNECT that has come from another server asks no further one, and waits for no agent", {
  timeout: 60_000,
}, async () => {
  const { open, asked, cluster } = world(false, "no_agent", 600_000);
  await assert.rejects(open(600_000, { onlyHere: true }), { code: "no_agent" });
  const agent = fakeAgent();
  cluster.places.reserve({ agentId: "a", instance: "1", identity: "CN=agent" }).join(agent.tunnel);
  agent.link.suspend();
  await assert.rejects(open(600_000, { onlyHere: true }), { code: "no_agent" }, "one that has lost its connection");
  assert.deepEqual(asked, []);
  agent.link.resume();
  (await open(600_000, { onlyHere: true })).destroy();
});
