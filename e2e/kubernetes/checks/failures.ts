import type { Program } from "../../harness/program.ts";
import { waitFor, within } from "../../harness/wait.ts";
import { type Check, expect, oneLine, type Seen, type Stage, since } from "../check.ts";
import { PORTS } from "../world/addresses.ts";
import { AGENT_IDS } from "../world/culvert.ts";
import { callerPair, egressOverTcp } from "../world/egress.ts";
import { inMain, type Kubectl } from "../world/kubectl.ts";
import { type AgentKind, CULVERT_LANES, lanesWith, tunnelOf } from "../world/lanes.ts";
import { judgedBy, type NodeName } from "../world/objects.ts";

/**
 * Users wait no longer than this for a sentence, also where kubectl asks again over SPDY when a WebSocket was refused.
 */
const ANSWERED_SECONDS = 10;
/** A stock agent gives a dial up after 5 s, where ours does so after 4 s. */
const TWO_DIALS_OF_STOCK_SECONDS = 12;
const RECOVERED_MS = 45_000;
const ENDED_MS = 15_000;
const AT_ONCE_MS = 3_000;
/** kube-apiserver has nothing to say about culvert's troubles when there is no culvert. */
const broken = { lanes: CULVERT_LANES, trouble: true, deadlineMs: 60_000 } as const;
const ourAgent = { ...broken, lanes: lanesWith("culvert") };
const stockAgent = { ...broken, lanes: lanesWith("konnectivity") };
/** Where no other agent takes over. */
const oneAgent = { ...broken, lanes: [...ourAgent.lanes, ...stockAgent.lanes] };

/** The lane's first check, while no server runs: kube-apiserver is there before it. */
export const SERVER_COMES_LATER: Check = {
  name: "the server starts after kube-apiserver",
  ...broken,
  run: serverComesLater,
};

/** Sentences of kubectl about a target that cannot be reached: ours, and those of the stock agent. */
interface Sentences {
  readonly culvert: string;
  readonly konnectivity?: string;
}

const BLACK_HOLE: Sentences = { culvert: "did not answer within 4 s: check firewalls", konnectivity: "i/o timeout" };

export const BAD_TARGETS: readonly Check[] = [
  unreachable("target refuses", "refusing", {
    culvert: "refused the connection: check that something listens there",
    konnectivity: "connect: connection refused",
  }),
  unreachable("target's name is unknown", "unknown", {
    culvert: "does not resolve at the agent: check the name",
    konnectivity: "no such host",
  }),
  unreachable("target is unroutable", "unroutable", {
    culvert: "cannot be reached: check the agent's routes",
    konnectivity: "no route to host",
  }),
  unreachable("target is a black hole", "black-hole", BLACK_HOLE),
  // A stock agent dials whatever it is asked for.
  unreachable("target is forbidden", "forbidden", { culvert: "may not be dialled" }),
  unreachable("target is a black hole, kubelet from 1.36 on", "new-black-hole", BLACK_HOLE),
  { name: "webhook is a black hole", ...oneAgent, beside: true, run: webhookInBlackHole },
];

/** Each leaves the world as it was. */
export const FAILURES: readonly Check[] = [
  { name: "agent is frozen (SIGSTOP)", ...oneAgent, run: agentFrozen },
  { name: "agent is killed, with logs -f open", ...ourAgent, run: agentKilled },
  { name: "agent is killed, --link-grace 2s, with logs -f open", ...ourAgent, run: graceOver },
  { name: "agent that cannot resume is killed, with logs -f open", ...stockAgent, run: stockAgentKilled },
  { name: "agent is stopped (SIGTERM)", ...oneAgent, run: agentStopped },
  { name: "agent is replaced by another", ...oneAgent, run: agentReplaced },
  { name: "server is restarted (SIGTERM)", ...broken, run: (stage) => serverRestarted(stage, "stop") },
  { name: "server is killed and restarted", ...broken, run: (stage) => serverRestarted(stage, "kill") },
  // It starts another kube-apiserver.
  { name: "wrong client certificate", ...broken, deadlineMs: 90_000, lanes: ["tcp"], run: wrongCertificate },
];

function unreachable(what: string, node: NodeName, sentences: Sentences): Check {
  const run = (stage: Stage) => {
    const kind = kindOf(stage);
    const seconds = kind === "konnectivity" ? TWO_DIALS_OF_STOCK_SECONDS : ANSWERED_SECONDS;
    return failing(stage.kubectl, node, sentences[kind] ?? "", seconds);
  };
  return { name: what, ...(sentences.konnectivity ? oneAgent : ourAgent), beside: true, run };
}

async function serverComesLater(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  const start = async () => {
    await culvert.startServer();
    culvert.startAgent();
  };
  return await withoutServer(stage, "no socket", start);
}

type Left = "no socket" | "a dead socket";
const DIALS_IN_VAIN = "failed to create connection to uds name";

/**
 * HTTP CONNECT fails at once. kube-apiserver's client of gRPC dials again and again for half a minute, says nothing
 * meanwhile, and gets through when a server comes.
 */
async function withoutServer(stage: Stage, left: Left, mend: () => Promise<void>): Promise<Seen> {
  if (tunnelOf(stage.lane).protocol === "HTTPConnect") return await between(stage, noServer(stage, left), mend);
  const { kubectl, kubeApiserver } = stage;
  const logged = kubeApiserver.log.length;
  const asked = kubectl.run(inMain("stand-in", ["true"]));
  const inVain = () => kubeApiserver.log.slice(logged).find((line) => line.includes(DIALS_IN_VAIN));
  await kubeApiserver.waitUntil(inVain, AT_ONCE_MS, "a dial of kube-apiserver");
  const mendedAt = performance.now();
  await mend();
  const recoveredSeconds = await recovery(stage, mendedAt);
  const { stderr, seconds } = await asked;
  return { printed: oneLine(stderr) || "waits", seconds, recoveredSeconds };
}

/**
 * While there is no server the sentence is kube-apiserver's own: a server that shuts down takes its socket with it.
 */
function noServer({ world, lane }: Stage, left: Left): string {
  if (tunnelOf(lane).transport === "TCP") return `dial tcp 127.0.0.1:${PORTS.callers}: connect: connection refused`;
  const reason = left === "no socket" ? "no such file or directory" : "connection refused";
  return `dial unix ${world.culvert.udsName}: connect: ${reason}`;
}

async function failing(
  kubectl: Kubectl,
  node: NodeName,
  sentence: string,
  answeredSeconds = ANSWERED_SECONDS,
): Promise<Seen> {
  const { code, stderr, seconds } = await kubectl.run(inMain(node, ["true"]));
  expect(code !== 0 && stderr.includes(sentence), `a failure with "${sentence}"`, stderr);
  expect(seconds <= answeredSeconds, `an answer within ${answeredSeconds} s`, `${seconds} s: ${stderr}`);
  return { printed: oneLine(stderr), seconds };
}

async function webhookInBlackHole(stage: Stage): Promise<Seen> {
  const { stderr, seconds } = await stage.kubectl.dryRun(judgedBy("black-hole"));
  const sentence = BLACK_HOLE[kindOf(stage)] ?? "";
  expect(stderr.includes(sentence), `a failure with "${sentence}"`, stderr);
  expect(seconds <= ANSWERED_SECONDS, `an answer within ${ANSWERED_SECONDS} s`, `${seconds} s: ${stderr}`);
  return { printed: oneLine(stderr), seconds };
}

/** kubectl asks three times, and the last time a stock agent has been given up already. */
async function agentFrozen(stage: Stage): Promise<Seen> {
  const { agent } = stage.world.culvert;
  agent.signal("SIGSTOP");
  const sentence = kindOf(stage) === "culvert" ? `agent "${AGENT_IDS.culvert}"` : NO_AGENT;
  return await between(stage, sentence, async () => agent.signal("SIGCONT"));
}

/** Its kernel says no more than a path that is cut: what is open stands still, until the agent's next process comes. */
async function agentKilled(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  await using following = await follow(stage);
  await culvert.agent.kill();
  let stoodStill = false;
  const seen = await between(stage, LOST, async () => {
    stoodStill = following.running;
    culvert.startAgent();
  });
  expect(stoodStill, "logs -f to wait for the agent", following.tail());
  await isCut(following);
  return seen;
}

/** Open connections end with the agent's connection to the server. */
async function stockAgentKilled(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  await using following = await follow(stage);
  await culvert.agent.kill();
  return await between(stage, NO_AGENT, async () => {
    await isCut(following).finally(() => culvert.startAgent());
  });
}

/** Nobody comes: what is open ends with the grace. */
async function graceOver(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  await restart(stage, { linkGrace: "2s" });
  try {
    await using following = await follow(stage);
    await culvert.agent.kill();
    return await between(stage, NO_AGENT, async () => {
      await isCut(following).finally(() => culvert.startAgent());
    });
  } finally {
    await restart(stage);
  }
}

/** An agent that shuts down takes what is open with it, and nobody waits for it. */
async function agentStopped(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  await using following = await follow(stage);
  await agentObeys(stage, culvert.agent);
  return await between(stage, NO_AGENT, async () => {
    await isCut(following).finally(() => culvert.startAgent());
  });
}

/** Resolves when something is open, and silent. */
async function follow({ kubectl }: Stage): Promise<Program> {
  const following = kubectl.start(["logs", "-f", "stand-in", "-c", "quiet-30"]);
  await following.waitForLog(/before the silence/);
  return following;
}

/** It must end, and not hang; and not by itself. */
async function isCut(following: Program): Promise<void> {
  await within(following.exited, AT_ONCE_MS, "the end of logs -f");
  expect(!following.log.includes("after the silence"), "logs -f to be cut", following.tail());
}

/** Resolves when kubectl gets through. */
async function restart(stage: Stage, options: Readonly<Record<string, string>> = {}): Promise<void> {
  const { culvert } = stage.world;
  await obeys(culvert.server);
  await culvert.startServer(options);
  await recovery(stage, performance.now());
}

/** A rolling update with one replica: the old one goes when the new one is there, and nobody notices. */
async function agentReplaced(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  const old = culvert.agent;
  culvert.startAgent();
  try {
    await culvert.agent.waitForLog(CONNECTED[kindOf(stage)]);
  } finally {
    old.signal("SIGTERM");
  }
  const { stdout, seconds } = await stage.kubectl.must(inMain("stand-in", ["echo", "as ever"]));
  await agentObeys(stage, old);
  return { printed: oneLine(stdout), seconds };
}

async function serverRestarted(stage: Stage, how: "stop" | "kill"): Promise<Seen> {
  const { culvert } = stage.world;
  if (how === "kill") await culvert.server.kill();
  else await obeys(culvert.server);
  return await withoutServer(stage, how === "kill" ? "a dead socket" : "no socket", () => culvert.startServer());
}

/** A stock agent drains at its first SIGTERM, and ends at the second. */
async function agentObeys(stage: Stage, agent: Program): Promise<void> {
  if (kindOf(stage) === "konnectivity") {
    agent.signal("SIGTERM");
    await agent.waitForLog(/Received first signal/);
  }
  await obeys(agent);
}

function kindOf({ lane }: Stage): AgentKind {
  const [kind] = tunnelOf(lane).agents;
  if (!kind) throw new Error("a lane without agents");
  return kind;
}

/** The log line of an agent about a server that it has found. */
export const CONNECTED: Readonly<Record<AgentKind, RegExp>> = {
  culvert: /uplink connected/,
  konnectivity: /Connect to server/,
};

async function obeys(program: Program): Promise<void> {
  program.signal("SIGTERM");
  await endsCleanly(program);
}

async function endsCleanly(program: Program): Promise<void> {
  const end = await within(program.exited, ENDED_MS, `${program.name} to end by SIGTERM`);
  expect(end === "exit code 0", `${program.name} to end cleanly`, end);
}

/** kube-apiserver reads its certificate once, so it takes another one. */
async function wrongCertificate({ world, signal }: Stage): Promise<Seen> {
  const { cert, key } = world.pki.stranger;
  const egress = egressOverTcp({ ...callerPair(world.pki.culvert), cert, key });
  const other = await world.startKubeApiserver(egress, PORTS.otherKubeApiserver);
  try {
    return await failing(
      other.kubectl.until(signal),
      "stand-in",
      "code 407: 407 no client certificate was sent, or none of a CA",
    );
  } finally {
    await other.program.kill();
  }
}

/** It may come back. */
const LOST = 'agent "node" has lost its connection and is not back yet: check that it runs, and the path to it';
const NO_AGENT = 'no agent of cluster "default" is connected: check that one runs';

/** Between the breakage and its mending kubectl tells of it; the mending is done whatever it tells. */
async function between(stage: Stage, sentence: string, mend: () => Promise<void>): Promise<Seen> {
  let recoveredSeconds = 0;
  const meanwhile = await failing(stage.kubectl, "stand-in", sentence).finally(async () => {
    const mendedAt = performance.now();
    await mend();
    recoveredSeconds = await recovery(stage, mendedAt);
  });
  return { ...meanwhile, recoveredSeconds };
}

/** Seconds until kubectl gets through. */
async function recovery({ kubectl, signal }: Stage, started: number): Promise<number> {
  const through = async () => signal.aborted || (await kubectl.run(inMain("stand-in", ["true"]))).code === 0;
  await waitFor(through, { deadlineMs: RECOVERED_MS, everyMs: 50, what: "kubectl gets through again" });
  signal.throwIfAborted();
  return since(started);
}
