import { selfSigned } from "../../harness/certificate.ts";
import { cpuSeconds } from "../../harness/proc.ts";
import { type Bench, contenders } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import type { DialSpec } from "../dial-spec.ts";
import { atLeast, Rounds, type Row } from "../rows.ts";

const IN_FLIGHT = 32;

export type Kind = "CONNECT on unix socket" | "CONNECT on mTLS" | "CONNECT, 1-byte echo, close";

/**
 * How many connections a second, 32 at a time. "direct" is a listener that answers 200 by itself: the load generator's
 * limit.
 */
export async function connect(bench: Bench): Promise<Row[]> {
  const rounds = new Rounds();
  const certificate = await selfSigned();
  const path = bench.around.dir.file("responder");
  const tls = { ca: certificate.cert, ...certificate };
  const { port } = await bench.around.bulkTargets.call("startResponders", { path, tls });
  await sampleAll(bench, 0, new Rounds()); // until the paths are compiled
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`connections, round ${round + 1}`);
    await sampleAll(bench, round, rounds);
    if (round > 0) continue;
    const { direct } = bench.floors;
    const echo = direct.dial("echo");
    await sampleRate(bench, direct, "CONNECT, 1-byte echo, close", echo, rounds);
    await sampleRate(bench, direct, "CONNECT on unix socket", { path, connect: "direct:1" }, rounds);
    await sampleRate(bench, direct, "CONNECT on mTLS", { port, tls, connect: "direct:1" }, rounds);
  }
  const row = (kind: Kind, what: string, unit: string, goal?: number): Row => {
    const figures = rounds.medians(`${kind} ${what}`);
    const label = what === "rate" ? kind : `${kind}: ${what}`;
    const goals = goal === undefined ? [] : [atLeast(figures, goal, "proxy")];
    return { group: "connect", label, unit, figures, goals };
  };
  return [
    row("CONNECT on unix socket", "rate", "/s", 0.9),
    row("CONNECT on unix socket", "p50", "ms"),
    row("CONNECT on unix socket", "p99", "ms"),
    row("CONNECT on unix socket", "server", "CPU µs"),
    row("CONNECT on unix socket", "agent", "CPU µs"),
    row("CONNECT on mTLS", "rate", "/s"),
    row("CONNECT on mTLS", "p50", "ms"),
    row("CONNECT on mTLS", "p99", "ms"),
    row("CONNECT on mTLS", "server", "CPU µs"),
    row("CONNECT, 1-byte echo, close", "rate", "/s", 0.8),
    row("CONNECT, 1-byte echo, close", "server", "CPU µs"),
    row("CONNECT, 1-byte echo, close", "agent", "CPU µs"),
  ];
}

async function sampleAll(bench: Bench, round: number, rounds: Rounds): Promise<void> {
  for (const each of contenders(bench, round, "proxy")) {
    await sampleRate(bench, each, "CONNECT on unix socket", each.dial("echo"), rounds);
  }
  for (const each of contenders(bench, round, "proxy")) {
    await sampleRate(bench, each, "CONNECT, 1-byte echo, close", each.dial("echo"), rounds);
  }
  for (const each of contenders(bench, round)) {
    if (each.dialTls) await sampleRate(bench, each, "CONNECT on mTLS", each.dialTls("echo"), rounds);
  }
}

/** Adds the kind's `rate`, `p50` and `p99`, and the CPU time of each process for one connection: `server`, `agent`. */
export async function sampleRate(
  bench: Bench,
  { name, near, far }: Contender,
  kind: Kind,
  dial: DialSpec,
  rounds: Rounds,
): Promise<void> {
  const until = kind === "CONNECT, 1-byte echo, close" ? "echo" : "connect";
  const { seconds } = bench.settings;
  const cpuBefore = { server: near ? cpuSeconds(near) : 0, agent: far ? cpuSeconds(far) : 0 };
  const result = await bench.around.bulkLoad.call("rate", { dial, inFlight: IN_FLIGHT, seconds, until });
  if (result.failures > 0) bench.say(`${name}: ${result.failures} × ${kind} failed: ${result.firstFailure}`);
  const perConnection = (cpu: number) => (cpu * 1e6) / (result.perSecond * seconds);
  if (near) rounds.add(name, `${kind} server`, perConnection(cpuSeconds(near) - cpuBefore.server));
  if (far) rounds.add(name, `${kind} agent`, perConnection(cpuSeconds(far) - cpuBefore.agent));
  rounds.add(name, `${kind} rate`, result.perSecond);
  rounds.add(name, `${kind} p50`, result.p50Ms);
  rounds.add(name, `${kind} p99`, result.p99Ms);
}
