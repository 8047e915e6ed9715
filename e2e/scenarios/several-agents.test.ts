import assert from "node:assert/strict";
import { test } from "node:test";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { encodeAnswer } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { turn } from "../../shared/yamux/testing/sessions.ts";
import { type Connection, established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import {
  type AgentsWorld,
  answering,
  echo,
  rawHead,
  type ScriptedAgentOptions,
  scriptedAgent,
} from "../harness/scripted-agent.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

// ── which one is picked ──────────────────────────────────────────────────────────────────────────────────────────

test("a new connection goes to the agent with the fewest streams", async () => {
  await using world = await startWorld({ agents: 3, targets: ["echo"] });
  const held = [];
  for (let i = 0; i < 9; i++) held.push(await world.connect("echo"));
  assert.deepEqual(streamCounts(world), [3, 3, 3]);
  // They went round: the first, fourth and seventh are one agent's.
  for (const index of [0, 3, 6]) {
    held[index]?.end();
    await held[index]?.readAll();
  }
  await waitFor(() => streamCounts(world).includes(0));
  const emptied = streamCounts(world).indexOf(0);
  for (let i = 1; i <= 3; i++) {
    assert.equal((await world.connect("echo")).status, 200);
    assert.equal(streamCounts(world)[emptied], i);
  }
});

test("an agent whose dials fail at once does not get all CONNECTs of its cluster, and gets them again when they succeed", async () => {
  await using world = await startWorld({ agents: 0 });
  let isBroken = true;
  const failing = answering(encodeAnswer({ ok: false, error: "dial_unreachable", detail: "no route" }));
  const broken = await scriptedAgent(world, {
    agentId: "broken",
    onStream: (stream) => (isBroken ? failing(stream) : echo(stream)),
  });
  await using _broken = broken;
  await using healthy = await scriptedAgent(world, { agentId: "healthy", onStream: echo });
  const held: Connection[] = [];
  let failures = 0;
  for (let count = 0; count < 40; count++) {
    const connection = await world.connect("10.0.0.1:443");
    if (connection.status === 200) held.push(connection);
    else failures++;
  }
  // Without a rest all but the first: it holds no streams, and the other one holds more with each.
  assert.ok(failures >= 3 && failures <= 6, `${failures} of 40 failed`);
  assert.equal(healthy.streams.length, 40 - failures);

  isBroken = false;
  const before = broken.streams.length;
  await waitFor(async () => {
    held.push(await world.connect("10.0.0.1:443"));
    return broken.streams.length >= before + 3;
  });
  for (const connection of held) await connection[Symbol.asyncDispose]();
});

test("an agent that drains keeps its connections and gets no new ones; its leaving harms nobody", async () => {
  await using world = await startWorld({ agents: 2, targets: ["echo"] });
  const open = [await world.connect("echo"), await world.connect("echo")];
  assert.deepEqual(streamCounts(world), [1, 1]);
  const [leaving, staying] = world.agents;
  const closed = leaving?.close();
  await waitFor(() => [...world.server.tunnels.tunnels()].some((tunnel) => tunnel.draining));
  for (let i = 0; i < 5; i++) assert.equal((await world.connect("echo")).status, 200);
  assert.deepEqual([leaving?.streamCount, staying?.streamCount], [1, 6]);
  for (const connection of open) {
    await connection.send("still here");
    assert.equal(await connection.read(), "still here");
    connection.end();
    assert.equal(await connection.readAll(), "");
  }
  await within(closed ?? Promise.reject(new Error("no agent")), 15_000, "the agent that drains");
  await waitFor(() => world.server.tunnels.clusters.get("default")?.tunnels().size === 1);
});

// ── one retry ────────────────────────────────────────────────────────────────────────────────────────────────────

interface Retry {
  /** The behaviour of the agent that is asked first. */
  readonly first: (stream: Stream, cut: () => void) => void;
  readonly status: number;
  /** How often the caller's target was asked for, both agents together. */
  readonly asked: number;
}

const accepted = (act: (stream: Stream, cut: () => void) => void) => (stream: Stream, cut: () => void) => {
  stream.accept();
  void turn().then(() => act(stream, cut)); // the ACK goes first
};

const RETRIES: Readonly<Record<string, Retry>> = {
  "lost before it took the stream": { first: (_stream, cut) => cut(), status: 200, asked: 2 },
  silent: { first: () => {}, status: 200, asked: 2 },
  full: { first: (stream) => stream.reset(), status: 200, asked: 2 },
  "out of descriptors, and says so": {
    ...{ first: answering(rawHead('{"error":"agent_exhausted","detail":"EMFILE"}')), status: 200, asked: 2 },
  },
  "draining, and says so": {
    ...{ first: answering(rawHead('{"error":"draining","detail":"bye"}')), status: 200, asked: 2 },
  },
  // No byte of the caller's has been sent yet: its target knows nothing of it.
  "lost after it took the stream": { first: accepted((_stream, cut) => cut()), status: 200, asked: 2 },
  "silent after it took the stream": { first: accepted(() => {}), status: 504, asked: 1 },
  "told that the target refuses": {
    ...{ first: answering(rawHead('{"error":"dial_refused","detail":"no"}')), status: 502, asked: 1 },
  },
  "told that the target may not be dialled": {
    ...{ first: answering(rawHead('{"error":"forbidden","detail":"no"}')), status: 403, asked: 1 },
  },
};

for (const [what, { first, status, asked }] of Object.entries(RETRIES)) {
  const then = asked === 2 ? "another one is tried, once" : "no other is tried";
  test(`the agent is ${what}: ${then}`, async () => {
    await using world = await startWorld({ agents: 0, server: { agentAckTimeoutMs: 200, connectTimeoutMs: 1_000 } });
    let streams = 0;
    const play = (stream: Stream, agent: { link: { destroy(): void } }) => {
      streams++;
      if (streams === 1) first(stream, () => agent.link.destroy());
      else answering(rawHead('{"ok":true}'))(stream);
    };
    await using _one = await scriptedAgent(world, { agentId: "one", onStream: play });
    await using _two = await scriptedAgent(world, { agentId: "two", onStream: play });
    const { status: heard, reason } = await world.connect("10.0.0.1:443");
    assert.equal(heard, status, reason);
    assert.equal(streams, asked);
    const { registry } = world.server.metrics;
    assert.equal((await scrapeRegistry(registry)).value("culvert_server_pending_opens", { cluster: "default" }), 0);
  });
}

test("two agents that are both silent: two tries and no third, inside the deadline", async () => {
  const connectTimeoutMs = 20_000;
  await using world = await startWorld({ agents: 0, server: { agentAckTimeoutMs: 200, connectTimeoutMs } });
  let streams = 0;
  const onStream = () => {
    streams++;
  };
  await using _one = await scriptedAgent(world, { agentId: "one", onStream });
  await using _two = await scriptedAgent(world, { agentId: "two", onStream });
  await using _three = await scriptedAgent(world, { agentId: "three", onStream });
  const { status, answeredMs } = await world.connect("10.0.0.1:443");
  assert.equal(status, 504);
  assert.equal(streams, 2);
  assert.ok(answeredMs >= 390 && answeredMs < connectTimeoutMs, `${answeredMs} ms`);
});

// ── whose id ─────────────────────────────────────────────────────────────────────────────────────────────────────

test("the same id, the same identity, another process: the newcomer takes over and the old one drains", async () => {
  await using world = await startWorld({ agents: 0 });
  await using old = await scriptedAgent(world, { agentId: "a", instance: "1" });
  await using open = await world.connect("10.0.0.1:443");
  await using young = await scriptedAgent(world, { agentId: "a", instance: "2" });
  await waitFor(() => old.session.draining);
  await open.send("still here");
  assert.equal(await open.read(), "still here");
  await using _next = await established(world.connect("10.0.0.1:443"));
  assert.deepEqual([old.streams.length, young.streams.length], [1, 1]);
  open.end();
  await open.readAll();
  assert.equal(await within(old.closed, 3_000, "the old tunnel's end"), undefined);
});

test("two processes with one id: the one that was replaced is refused with a sentence, and keeps its streams beyond any drain", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ agents: 0, log, server: { drainTimeoutMs: 0 } });
  await using old = await scriptedAgent(world, { agentId: "a", instance: "1" });
  await using open = await world.connect("10.0.0.1:443");
  await using young = await scriptedAgent(world, { agentId: "a", instance: "2" });
  await waitFor(() => old.session.draining);
  const sentence = /^another running process uses agent id "a" \(from 127\.0\.0\.1\): give each its own --agent-id$/;
  for (let times = 0; times < 2; times++) await refused(world, { agentId: "a", instance: "1" }, 4409, sentence);
  assert.equal(young.session.draining, false);
  await open.send("still here");
  assert.equal(await open.read(), "still here");
  const told = lines.filter(({ msg }) => msg === "agent refused");
  assert.deepEqual(
    told.map(({ level, reason }) => [level, sentence.test(String(reason))]),
    [
      ["warn", true],
      ["warn", true],
    ],
  );
  open.end();
  await open.readAll();
  assert.equal(await within(old.closed, 3_000, "the old tunnel's end"), undefined);
});

test("two agents that were given one id settle: the last one serves, the first keeps its streams and takes over when it has gone", async () => {
  const { log, lines } = captureLog();
  const count = (wanted: string) => lines.filter(({ msg }) => msg === wanted).length;
  const agent = { agentId: "one", syncIntervalMs: 50, syncIntervalCapMs: 100 };
  await using world = await startWorld({ agents: 1, targets: ["echo"], agent, log });
  await using open = await world.connect("echo");
  const second = await world.startAgent();
  await waitFor(() => count("agent refused") >= 2);
  assert.equal(count("tunnel opened"), 2);
  await open.send("still here");
  assert.equal(await open.read(), "still here");
  assert.equal((await world.connect("echo")).status, 200);
  assert.deepEqual(streamCounts(world), [1, 1]);
  second.destroy(new Error("killed"));
  await waitFor(() => count("tunnel opened") === 3);
  assert.equal((await world.connect("echo")).status, 200);
  await open.send("and on");
  assert.equal(await open.read(), "and on");
});

test("the same process again is already_connected, another identity is a duplicate; neither touches who is there", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ agents: 0, log });
  await using holder = await scriptedAgent(world, { agentId: "a", instance: "1" });
  await using open = await world.connect("10.0.0.1:443");
  const other = await world.pki.clusterAuthority.issue({ cn: "somebody-else", usage: "client" });
  await refused(
    world,
    { agentId: "a", instance: "1" },
    4409,
    /^already_connected: this agent has a tunnel to server "/,
  );
  for (const instance of ["1", "2"]) {
    const sentence = /^agent id "a" belongs to another certificate: give each agent its own --agent-id$/;
    await refused(world, { agentId: "a", instance, certificate: other }, 4410, sentence);
  }
  assert.equal(holder.session.draining, false);
  await open.send("untouched");
  assert.equal(await open.read(), "untouched");
  const refusals = lines.filter(({ msg }) => msg === "agent refused");
  assert.equal(refusals.length, 2, "an agent that looks for another server behind the same address is no refusal");
  await using sameIdentityOtherId = await scriptedAgent(world, { agentId: "b" });
  assert.equal(sameIdentityOtherId.session.closed, false);
});

test("a renewed certificate is the same identity", async () => {
  await using world = await startWorld({ agents: 0 });
  const issue = (): Promise<CertificateAndKey> =>
    world.pki.clusterAuthority.issue({ cn: "node-7", o: ["edge"], usage: "client" });
  await using old = await scriptedAgent(world, { agentId: "a", instance: "1", certificate: await issue() });
  await using _young = await scriptedAgent(world, { agentId: "a", instance: "2", certificate: await issue() });
  await waitFor(() => old.session.draining);
});

test("one agent more than --max-agents is refused; there is room again when one has gone", async () => {
  await using world = await startWorld({ agents: 0, server: { maxAgents: 2, linkGraceMs: 0 } });
  const first = await scriptedAgent(world, { agentId: "a" });
  await using _second = await scriptedAgent(world, { agentId: "b" });
  await refused(world, { agentId: "c" }, 4429, /^cluster "default" has 2 agents, its limit \(--max-agents\)$/);
  await first[Symbol.asyncDispose]();
  await waitFor(() => world.server.tunnels.clusters.get("default")?.tunnels().size === 1);
  await using _third = await scriptedAgent(world, { agentId: "c" });
});

async function refused(world: AgentsWorld, options: ScriptedAgentOptions, code: number, says: RegExp): Promise<void> {
  await assert.rejects(scriptedAgent(world, options), (error) => {
    assert.ok(error instanceof LinkRefused, String(error));
    assert.equal(error.closeCode, code);
    assert.match(error.reason, says);
    return true;
  });
}

function streamCounts(world: Pick<World, "agents">): number[] {
  return world.agents.map((agent) => agent.streamCount);
}
