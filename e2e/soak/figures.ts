import { setTimeout as sleep } from "node:timers/promises";
import { collectGarbage, heldBytes } from "../harness/inspector.ts";
import { type Scrape, scrapePort } from "../harness/scrape.ts";
import { waitFor } from "../harness/wait.ts";
import { every } from "./pause.ts";
import type { Soaked } from "./processes.ts";
import type { Site } from "./site.ts";

/** The resources of a process at rest. */
export interface Figures {
  readonly name: string;
  readonly rssBytes: number;
  /** Heap and buffers outside it, after a collection. */
  readonly heldBytes: number;
  readonly descriptors: number;
}

/**
 * Fetch keeps the connection of a scrape open for some seconds, which is a descriptor of the process that was asked.
 */
export const SAMPLED_MS = 8_000;
const SAMPLE_EVERY_MS = 200;
/** As long as a link waits for its next connection. */
const REST_MS = 30_000;

const COLLECT_EVERY_MS = 5_000;

/**
 * Collects garbage again and again until the signal is aborted. V8 does not know how much memory OpenSSL holds for a
 * closed connection that it has not collected yet: by the time it does collect, glibc has a heap of the size of that
 * peak and keeps it, and how high the peak is depends on chance.
 */
export async function collectWhile({ processes }: Site, signal: AbortSignal): Promise<void> {
  await every(COLLECT_EVERY_MS, signal, async () => {
    // A process that ends is in the verdict already.
    for (const { process } of processes) if (process.running) await collectGarbage(process).catch(() => {});
  });
}

/** Collects garbage and takes the least of some seconds: what comes and goes, as a scrape, is not held. */
export async function figuresOf(processes: readonly Soaked[]): Promise<Figures[]> {
  const held: number[] = [];
  for (const { process } of processes) {
    const { heap, buffers } = await heldBytes(process);
    held.push(heap + buffers);
  }
  const least = processes.map(() => ({ rssBytes: Number.POSITIVE_INFINITY, descriptors: Number.POSITIVE_INFINITY }));
  const until = performance.now() + SAMPLED_MS;
  while (performance.now() < until) {
    for (const [index, { process }] of processes.entries()) {
      const at = least[index] as (typeof least)[number];
      at.rssBytes = Math.min(at.rssBytes, process.rssBytes());
      at.descriptors = Math.min(at.descriptors, process.fdCount());
    }
    await sleep(SAMPLE_EVERY_MS);
  }
  return processes.map(({ name }, index) => ({
    name,
    heldBytes: held[index] as number,
    ...(least[index] as (typeof least)[number]),
  }));
}

/** Gauges that are not what they must be when nothing is under way but `connections` silent ones; none is good. */
export async function unrest({ server, agents }: Site, connections: number): Promise<string[]> {
  let found: string[] = [];
  const look = async (): Promise<boolean> => {
    const atServer = await scrapePort(server.healthPort);
    const atAgents = await Promise.all(agents.map(({ healthPort }) => scrapePort(healthPort)));
    found = [...unrestOfServer(atServer, agents.length, connections), ...unrestOfAgents(agents, atAgents, connections)];
    return found.length === 0;
  };
  await waitFor(look, { deadlineMs: REST_MS, everyMs: 500 }).catch((error: Error) => {
    if (found.length === 0) found.push(`metrics could not be read: ${error.message}`);
  });
  return found;
}

function unrestOfServer(scrape: Scrape, tunnels: number, connections: number): string[] {
  return wrong("server", scrape, [
    ["culvert_server_connections", {}, connections],
    ["culvert_server_established_connections", {}, connections],
    ["culvert_server_streams", {}, connections],
    ["culvert_server_pending_opens", {}, 0],
    ["culvert_server_buffered_bytes", {}, 0],
    ["culvert_server_tunnels", {}, tunnels],
    ["culvert_server_links", { state: "carried" }, tunnels],
    ["culvert_server_links", { state: "suspended" }, 0],
    ["culvert_server_link_replay_bytes", {}, 0],
    ["culvert_server_cluster_faults", {}, 0],
    // Nothing may have been ended or refused since the start.
    ["culvert_server_link_grace_expiries_total", {}, 0],
    ["culvert_server_streams_reset_for_memory_total", {}, 0],
    ["culvert_server_streams_refused_for_memory_total", {}, 0],
    ["culvert_server_connections_ended_for_memory_total", {}, 0],
  ]);
}

function unrestOfAgents(agents: readonly Soaked[], scrapes: readonly Scrape[], connections: number): string[] {
  const found = agents.flatMap(({ name }, index) =>
    wrong(name, scrapes[index] as Scrape, [
      ["culvert_agent_connected_servers", {}, 1],
      ["culvert_agent_pending_dials", {}, 0],
      ["culvert_agent_buffered_bytes", {}, 0],
      ["culvert_agent_links", { state: "carried" }, 1],
      ["culvert_agent_links", { state: "suspended" }, 0],
      ["culvert_agent_link_replay_bytes", {}, 0],
      ["culvert_agent_link_grace_expiries_total", {}, 0],
      ["culvert_agent_streams_reset_for_memory_total", {}, 0],
    ]),
  );
  const streams = scrapes.map((scrape) => scrape.value("culvert_agent_streams"));
  const sum = streams.reduce((all, each) => all + each, 0);
  if (sum !== connections) found.push(`The agents have ${sum} streams (${streams.join(", ")}), not ${connections}.`);
  return found;
}

type Expected = readonly [name: string, labels: Readonly<Record<string, string>>, value: number];

function wrong(who: string, scrape: Scrape, expected: readonly Expected[]): string[] {
  return expected.flatMap(([name, labels, value]) => {
    const found = scrape.value(name, labels);
    const text = Object.values(labels).map((label) => ` (${label})`);
    return found === value ? [] : [`On the ${who}, ${name}${text.join("")} is ${found}, not ${value}.`];
  });
}
