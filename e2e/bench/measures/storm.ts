import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { agentFiles } from "../../harness/pki-files.ts";
import { waitFor } from "../../harness/wait.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { Culvert } from "../culvert.ts";
import { below, type Row } from "../rows.ts";
import type { CrowdMethods } from "../storm/crowd.ts";
import type { PulseMethods, PulseResult } from "../storm/pulse.ts";

const AGENTS = 5000;
const STORM_MS = 90_000;
const CALM_MS = 3000;
const MIB = 1_048_576;

/** All agents of a server are cut at once and come back; meanwhile one that was not cut carries an echo. */
export async function storm(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  await using crowd = new BenchChild<CrowdMethods>("storm/crowd.ts");
  await using pulse = new BenchChild<PulseMethods>("storm/pulse.ts");
  await using pair = await startCulvertPair(bench.around.ports, { flags: { maxAgents: AGENTS + 1 }, withAgent: false });
  await using _bystander = await pair.site.startAgent({}, { ignoreStdout: true });
  // The stream is opened while the bystander is the only agent there is: light ones carry none.
  await pulse.call("start", { dial: pair.dial("echo") });
  bench.say(`storm: ${AGENTS} agents gather`);
  await gather(crowd, pair);
  await sleep(CALM_MS);
  await pulse.call("take", {});
  await sleep(CALM_MS);
  const calm = await pulse.call("take", {});
  const rssBefore = pair.server.rssBytes();
  using peak = watchPeak(pair);
  bench.say("storm: all are cut");
  const begun = performance.now();
  await crowd.call("cut", {});
  const allBack = async () => (await crowd.call("state", {})).connected === AGENTS;
  try {
    await waitFor(allBack, { deadlineMs: STORM_MS, everyMs: 50, what: `${AGENTS} agents are back` });
  } finally {
    const { connected, attempts, sentAway, failed, lost } = await crowd.call("state", {});
    bench.say(
      `storm: ${connected} are back; of ${attempts} attempts, ${sentAway} were sent away ${failed} failed; ${lost} lost`,
    );
  }
  const seconds = (performance.now() - begun) / 1000;
  const during = await pulse.call("take", {});
  await sleep(CALM_MS);
  const rssAfter = pair.server.rssBytes();
  return toRows({ seconds, calm, during, rss: { before: rssBefore, peak: peak.bytes, after: rssAfter } });
}

async function gather(crowd: BenchChild<CrowdMethods>, { site }: Culvert): Promise<void> {
  const { caCert, agentCert, agentKey } = agentFiles(site.dir.path);
  const [ca, cert, key] = [caCert, agentCert, agentKey].map((file) => readFileSync(file, "utf8"));
  const tls = { ca: ca ?? "", cert: cert ?? "", key: key ?? "" };
  await crowd.call("gather", { port: site.agentPort, tls, count: AGENTS });
}

/** The largest resident set of the server from now on. */
function watchPeak({ server }: Culvert): Disposable & { readonly bytes: number } {
  let bytes = server.rssBytes();
  const timer = setInterval(() => {
    bytes = Math.max(bytes, server.rssBytes());
  }, 50);
  return {
    get bytes() {
      return bytes;
    },
    [Symbol.dispose]: () => clearInterval(timer),
  };
}

interface Figures {
  readonly seconds: number;
  readonly calm: PulseResult;
  readonly during: PulseResult;
  /** The server's, bytes. */
  readonly rss: { readonly before: number; readonly peak: number; readonly after: number };
}

function toRows({ seconds, calm, during, rss }: Figures): Row[] {
  const row = (label: string, unit: string, value: number, limit?: number): Row => {
    const figures = { culvert: value };
    return { group: "storm", label, unit, figures, goals: limit === undefined ? [] : [below(figures, limit, unit)] };
  };
  return [
    row(`${AGENTS} agents cut → all are back`, "s", seconds, 60),
    row("bystander's echo p99, before", "ms", calm.p99Ms),
    row("bystander's echo p50, until all are back", "ms", during.p50Ms),
    row("bystander's echo p99, until all are back", "ms", during.p99Ms, 50),
    row("bystander's echo, the longest", "ms", during.maxMs),
    row("server, RSS before", "MiB", rss.before / MIB),
    row("server, RSS at most", "MiB", rss.peak / MIB),
    row("server, RSS once all are back", "MiB", rss.after / MIB),
  ];
}
