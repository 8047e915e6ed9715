import { setTimeout as sleep } from "node:timers/promises";
import { startRelay } from "../../harness/faults.ts";
import type { Bench } from "../bench.ts";
import type { Culvert } from "../culvert.ts";
import { below, type Row } from "../rows.ts";
import { median } from "../stats.ts";

const TIMES = 5;
const DEADLINE_MS = 30_000;

/** From the start of an agent, and from the return of a link that was cut, to the first CONNECT that works. */
export async function start(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  await using pair = await startCulvertPair(bench.around.ports, { withAgent: false });
  const started = await agentStarts(bench, pair);
  const atOnce = await cuts(bench, pair, 0);
  const later = await cuts(bench, pair, 1000);
  const row = (label: string, values: readonly number[], limit: number): Row => {
    const figures = { culvert: median(values) };
    return { group: "start", label, unit: "s", figures, goals: [below(figures, limit, "s")] };
  };
  return [
    row("agent start → first CONNECT", started, 0.6),
    row("link cut → next CONNECT", atOnce, 0.5),
    row("link away 1 s, then back → next CONNECT", later, 0.5),
  ];
}

async function agentStarts(bench: Bench, pair: Culvert): Promise<number[]> {
  const seconds: number[] = [];
  for (let i = 0; i < TIMES; i++) {
    bench.say(`start of an agent, ${i + 1} of ${TIMES}`);
    const begun = now();
    const agent = await pair.site.startAgent({}, { wait: false, ignoreStdout: true });
    try {
      seconds.push((await firstConnect(bench, pair)) - begun);
    } finally {
      await agent.stop();
    }
  }
  return seconds;
}

async function cuts(bench: Bench, pair: Culvert, awayMs: number): Promise<number[]> {
  const seconds: number[] = [];
  await using relay = await startRelay({ host: "127.0.0.1", port: pair.site.agentPort });
  for (let i = 0; i < TIMES; i++) {
    bench.say(`link cut for ${awayMs} ms, ${i + 1} of ${TIMES}`);
    // A new agent each time: one that has been cut a few times within a minute backs off.
    await using _agent = await pair.site.startAgent({}, { agentPort: relay.port, ignoreStdout: true });
    await firstConnect(bench, pair);
    await relay.unplug();
    await sleep(awayMs);
    await relay.plug();
    const back = now();
    seconds.push((await firstConnect(bench, pair)) - back);
  }
  return seconds;
}

/** When it worked, in seconds since the epoch. */
async function firstConnect(bench: Bench, pair: Culvert): Promise<number> {
  const dial = pair.dial("echo");
  const { epochMs } = await bench.around.echoLoad.call("first", { dial, until: "connect", deadlineMs: DEADLINE_MS });
  return epochMs / 1000;
}

function now(): number {
  return (performance.timeOrigin + performance.now()) / 1000;
}
