import type { Bench } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import { atLeast, type Goal, Rounds, type Row, shortNumber } from "../rows.ts";
import { type Kind, sampleRate } from "./connect.ts";
import { sampleFlow } from "./throughput.ts";

const GROUP = "inner-tls";
const STREAMS = [1, 32] as const;
const RATES: readonly Kind[] = ["CONNECT on unix socket", "CONNECT, 1-byte echo, close"];
/** A connection is a few small messages: TLS around them is not to be felt. */
const RATE_GOAL = 0.9;

/**
 * The cost of a second TLS over the link: the same two processes with and without it. The measure of "one more pass" is
 * the raw relay, which is TLS and the sockets at its ends.
 */
export async function innerTls(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  await using inner = await startCulvertPair(bench.around.ports, { flags: { innerTls: "always" } });
  const both: readonly Contender[] = [inner, { ...bench.culvert, name: "without" }];
  return [...(await throughput(bench, both)), ...(await rates(bench, both))];
}

async function throughput(bench: Bench, both: readonly Contender[]): Promise<Row[]> {
  const rows: Row[] = [];
  for (const streams of STREAMS) {
    for (const flow of ["down", "up"] as const) {
      const rounds = new Rounds();
      for (let round = 0; round < bench.settings.rounds; round++) {
        bench.say(`inner TLS, ${flow}, ${streams} streams, round ${round + 1}`);
        for (const each of [...both, bench.floors.pipe]) await sampleFlow(bench, each, flow, streams, rounds);
      }
      const label = `inner TLS, ${flow}, ${streams} ${streams === 1 ? "stream" : "streams"}`;
      const cpu = (side: "near" | "far", who: string): Row => {
        const figures = rounds.medians(side);
        return { group: GROUP, label: `${label}: ${who}`, unit: "CPU s/GB", figures, goals: [onePassMore(figures)] };
      };
      rows.push({ group: GROUP, label, unit: "MB/s", figures: rounds.medians("MB/s"), goals: [] });
      rows.push(cpu("near", "server"), cpu("far", "agent"));
    }
  }
  return rows;
}

async function rates(bench: Bench, both: readonly Contender[]): Promise<Row[]> {
  const rounds = new Rounds();
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`inner TLS, connections, round ${round + 1}`);
    for (const kind of RATES) {
      for (const each of both) await sampleRate(bench, each, kind, each.dial("echo"), rounds);
    }
  }
  return RATES.map((kind): Row => {
    const figures = rounds.medians(`${kind} rate`);
    const goals = [atLeast(figures, RATE_GOAL, "without")];
    return { group: GROUP, label: `inner TLS, ${kind}`, unit: "/s", figures, goals };
  });
}

/** The CPU time that came on top is at most the relay's. */
function onePassMore({ culvert = Number.NaN, without = Number.NaN, pipe = Number.NaN }: Row["figures"]): Goal {
  const more = culvert - without;
  const text = `+${shortNumber(more)} ≤ 1× pipe`;
  return { text, met: Number.isNaN(more - pipe) ? undefined : more <= pipe };
}
