import { PayloadCheck } from "../../harness/payload.ts";
import type { Program } from "../../harness/program.ts";
import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, oneLine, type Seen, type Stage, since } from "../check.ts";
import { NODE, PORTS } from "../world/addresses.ts";
import { inMain } from "../world/kubectl.ts";
import { CULVERT_LANES } from "../world/lanes.ts";
import type { Finished } from "../world/run.ts";
import { nothingLeftBehind } from "./leftovers.ts";

const HTTP = `${NODE.ipv4}:${PORTS.http}`;
const DOWNLOAD_BYTES = 512 * 1_048_576;
const HELD = 200;
/** Meanwhile kube-apiserver may have opened one or another connection for itself. */
const KUBE_APISERVERS_OWN = 5;

/** Dials of kube-apiserver's own dialer, without the rest of it; and targets that are reached in other ways. */
export const DIALS: readonly Check[] = [
  { name: "a name as the node's address", deadlineMs: 15_000, lanes: CULVERT_LANES, run: (s) => pod(s, "by-name") },
  { name: "an IPv6 address as the node's", deadlineMs: 15_000, run: (s) => pod(s, "by-ipv6") },
  { name: "a target that speaks first", deadlineMs: 15_000, run: speaksFirst },
  { name: "500 dials, one after another", deadlineMs: 60_000, goal: "dial", run: (stage) => dials(stage, 500, 1) },
  { name: "2,000 dials, 50 at once", deadlineMs: 60_000, run: (stage) => dials(stage, 2_000, 50) },
  { name: "download of 512 MB", deadlineMs: 60_000, goal: "time", run: download },
  { name: "download of 512 MB by the service proxy", deadlineMs: 60_000, goal: "time", run: proxiedDownload },
  { name: "200 held tunnels, caller killed", deadlineMs: 30_000, lanes: CULVERT_LANES, run: held },
];

async function pod({ kubectl }: Stage, name: string): Promise<Seen> {
  const logs = await kubectl.must(["logs", name, "-c", "main"]);
  const exec = await kubectl.must(inMain(name, ["echo", "from exec"]));
  const all = `${logs.stdout}${exec.stdout}`;
  expect(all === "log of main\nfrom exec\n", "a log and an echo", all);
  return { printed: oneLine(all) };
}

/** Its first bytes must not come in the same read as the 200. */
async function speaksFirst(stage: Stage): Promise<Seen> {
  const target = `${NODE.ipv4}:${PORTS.banner}`;
  return shown((await dialer(stage, ["--target", target, "--count", "20", "--banner"])).stdout);
}

async function dials(stage: Stage, count: number, inFlight: number): Promise<Seen> {
  const many = ["--count", String(count), "--in-flight", String(inFlight)];
  return shown((await dialer(stage, ["--target", HTTP, ...many])).stdout);
}

function shown(stdout: string): Seen {
  const { dials, failures, p50Ms, p99Ms, seconds } = JSON.parse(stdout);
  expect(failures === 0, "no failure", stdout);
  return { printed: `${dials} dials, p50 ${p50Ms} ms, p99 ${p99Ms} ms`, seconds, p50Ms };
}

async function download(stage: Stage): Promise<Seen> {
  const { stdout } = await dialer(stage, ["--target", HTTP, "--download", String(DOWNLOAD_BYTES)]);
  const { bytes, intact, MBps, seconds } = JSON.parse(stdout);
  expect(intact === true && bytes === DOWNLOAD_BYTES, "512 MB as sent", stdout);
  return { printed: `${Math.round(MBps)} MB/s, as sent`, seconds };
}

async function proxiedDownload({ kubectl }: Stage): Promise<Seen> {
  const path = `/api/v1/namespaces/default/services/http:web:http/proxy/bytes/${DOWNLOAD_BYTES}`;
  const check = new PayloadCheck();
  const { seconds } = await kubectl.must(["get", "--raw", path], { onStdout: (chunk) => check.take(chunk) });
  check.expect(DOWNLOAD_BYTES, "the answer");
  return { printed: `${Math.round(DOWNLOAD_BYTES / 1e6 / seconds)} MB/s, as sent`, seconds };
}

/** A caller that dies takes its tunnels with it: at the server, at the agent and at the target. */
async function held(stage: Stage): Promise<Seen> {
  const { culvert, node } = stage.world;
  const before = await node.openConnections("http");
  const descriptors = { server: culvert.server.fdCount(), agent: culvert.agent.fdCount() };
  await using caller = await holding(stage, HELD);
  const during = await node.openConnections("http");
  expect(during - before >= HELD, `${HELD} more connections at the target`, `${before}, then ${during}`);
  await caller.kill();
  const killed = performance.now();
  const gone = async () =>
    (await node.openConnections("http")) <= before &&
    culvert.server.fdCount() <= descriptors.server + KUBE_APISERVERS_OWN &&
    culvert.agent.fdCount() <= descriptors.agent + KUBE_APISERVERS_OWN;
  await waitFor(gone, { deadlineMs: 10_000, everyMs: 20, what: "no more connections and descriptors than before" });
  await nothingLeftBehind(culvert);
  return { printed: `${during - before} connections at the target, and all gone`, seconds: since(killed) };
}

/** kube-apiserver's dialer along the lane. */
function dialer(stage: Stage, args: readonly string[]): Promise<Finished> {
  const { assets, network } = stage.world;
  return network.controlPlane.must([assets.egressDialer, ...way(stage), ...args], { signal: stage.signal });
}

/** The same, while it keeps its connections open. */
export async function holding(stage: Stage, count: number): Promise<Program> {
  const { assets, network } = stage.world;
  const args = ["--target", HTTP, "--count", String(count), "--in-flight", "20", "--hold"];
  const dialer = network.controlPlane.start("egress-dialer", [assets.egressDialer, ...way(stage), ...args]);
  await dialer.waitForLog(new RegExp(`"held":${count}\\b`));
  return dialer;
}

function way({ world, lane }: Stage): string[] {
  return lane === "direct" ? ["--direct"] : ["--config", world.egressFile(lane)];
}
