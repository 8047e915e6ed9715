import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createSite, type Site } from "../harness/binaries.ts";
import { type Connection, connectThrough, isAnswered } from "../harness/caller.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { EchoCrowd } from "../harness/echo-crowd.ts";
import { certificateFlags, KonnectivityAgent } from "../harness/konnectivity-agent.ts";
import { konnectivityServer } from "../harness/konnectivity-server.ts";
import { latencyRatio } from "../harness/latency-ratio.ts";
import { Payload } from "../harness/payload.ts";
import { echoTarget, sendPayload } from "../harness/targets/plain.ts";
import { type TcpTarget, tcpTarget } from "../harness/targets/tcp.ts";
import { waitFor } from "../harness/wait.ts";
import { goMissing } from "../interop/go-peer.ts";

// One stopped reader of Konnectivity's own agent against a hundred other connections of it: with culvert's server, and
// in a full run with Konnectivity's, where they all stop.

const OTHERS = 100;
const STOPPED_MS = WHOLE_MATRICES ? 30_000 : 4_000;
/** A reader that takes nothing for 2 s has stopped: until then it could be slow, and its agent is slowed down. */
const HAS_STOPPED_MS = 2_500;
const WINDOW_MS = 1_000;
/** Less than a tunnel may hold (`--session-budget`). */
const SIZE = 48 * 1024 * 1024;
const MOST_RATIO = 2;

test("a reader that has stopped holds up none of 100 others of a stock agent, and then gets every byte", {
  skip: goMissing,
}, async (t) => {
  using site = await createSite();
  await using server = await site.startServer();
  using agent = await startAgent(site);
  await using echo = await echoTarget();
  await using others = await openOthers(site, echo.address);
  await using target = await talkativeTarget();
  const before = await windows(others, STOPPED_MS / 2);
  await using stopped = await stoppedReader(site, target.address);
  await others.echoes(HAS_STOPPED_MS);
  const beside = await windows(others, STOPPED_MS);
  const read = await stopped.readBytes(SIZE, 60_000);
  assert.ok(read.equals(new Payload().whole(SIZE)));
  const idle = [...before, ...(await windows(others, STOPPED_MS / 2))];

  const pairs = beside.map((attacked, i) => ({ attacked, calm: idle[i] ?? [] }));
  const { attacked, calm, percentile, ratio, atLeast } = latencyRatio(pairs);
  const factor = `${ratio.toFixed(2)} × (at least ${atLeast.toFixed(2)})`;
  const p = `p${Math.round(percentile)}`;
  t.diagnostic(`${p} ${calm.toFixed(1)} ms idle, ${attacked.toFixed(1)} ms beside a stopped reader: ${factor}`);
  if (WHOLE_MATRICES) assert.ok(atLeast <= MOST_RATIO, factor);
  assert.ok(agent && server.running);
});

test("with Konnectivity's own server all of them stop until it reads on", {
  skip: goMissing ?? (!WHOLE_MATRICES && "in a full run only"),
}, async (t) => {
  using site = await createSite();
  await using server = await konnectivityServer(site, "http-connect");
  using agent = await startAgent(site);
  await using echo = await echoTarget();
  await using others = await openOthers(site, echo.address);
  await using target = await talkativeTarget();
  await others.echoes(1_000);
  await using stopped = await stoppedReader(site, target.address);
  await sleep(HAS_STOPPED_MS);
  const asked = others.askAll();
  await sleep(STOPPED_MS);
  t.diagnostic(`${asked.answered} of ${OTHERS} echoes came within ${STOPPED_MS / 1_000} s beside a stopped reader`);
  assert.equal(asked.answered, 0);
  stopped.socket.resume();
  await waitFor(() => asked.answered === OTHERS);
  assert.ok(agent && server.running);
});

/** The times of all echoes, in windows of a second. */
async function windows(others: EchoCrowd, periodMs: number): Promise<number[][]> {
  const all: number[][] = [];
  for (let at = 0; at < periodMs; at += WINDOW_MS) all.push((await others.echoes(WINDOW_MS)).flat());
  return all;
}

function startAgent({ dir, agentPort: port }: Site): Promise<KonnectivityAgent> {
  return KonnectivityAgent.start(dir.path, { port, flags: [...certificateFlags(dir.path), "--v=0"] });
}

async function openOthers(site: Site, echo: string): Promise<EchoCrowd> {
  const listener = site.listener("uds");
  await waitFor(() => isAnswered(listener, echo), { deadlineMs: 30_000 });
  return await EchoCrowd.open(OTHERS, () => connectThrough(listener, echo));
}

/** It speaks when it is spoken to: Konnectivity's server may send what comes at once in front of its 200. */
function talkativeTarget(): Promise<TcpTarget> {
  return tcpTarget((socket) => void socket.once("data", () => sendPayload(socket, new Payload(), SIZE)));
}

async function stoppedReader(site: Site, target: string): Promise<Connection> {
  const stopped = await connectThrough(site.listener("uds"), target);
  stopped.socket.pause();
  await stopped.send("speak");
  return stopped;
}
