import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Bench } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import { atLeast, atMost, Rounds, type Row } from "../rows.ts";
import { type Kind, sampleRate } from "./connect.ts";

const KIND: Kind = "CONNECT, 1-byte echo, close";
/** Limits at the default of `--trace-sampling-rate-per-million`: 1 %. */
const PRICE = { rate: 0.9, cpu: 1.1 };

/** The cost of traces of one CONNECT in a hundred, at server and agent: the same processes with and without them. */
export async function traces(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  const receiver = createServer((request, response) => request.resume().once("end", () => response.end()));
  await once(receiver.listen(0, "127.0.0.1"), "listening");
  const otlpEndpoint = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  try {
    await using traced = await startCulvertPair(bench.around.ports, { flags: { otlpEndpoint } });
    return await measure(bench, [traced, { ...bench.culvert, name: "without" }]);
  } finally {
    receiver.close();
  }
}

async function measure(bench: Bench, both: readonly Contender[]): Promise<Row[]> {
  const rounds = new Rounds();
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`traces, connections, round ${round + 1}`);
    for (const each of round % 2 === 0 ? both : both.toReversed()) {
      await sampleRate(bench, each, KIND, each.dial("echo"), rounds);
    }
  }
  const row = (what: string, unit: string, goal: typeof atMost, limit: number): Row => {
    const figures = rounds.medians(`${KIND} ${what}`);
    return {
      group: "traces",
      label: `traces at 1 %, ${KIND}: ${what}`,
      unit,
      figures,
      goals: [goal(figures, limit, "without")],
    };
  };
  return [
    row("rate", "/s", atLeast, PRICE.rate),
    row("server", "CPU µs", atMost, PRICE.cpu),
    row("agent", "CPU µs", atMost, PRICE.cpu),
  ];
}
