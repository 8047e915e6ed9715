import { withBuildOf } from "../../harness/processes.ts";
import type { Bench } from "../bench.ts";
import { Rounds, type Row } from "../rows.ts";
import { type Kind, sampleRate } from "./connect.ts";

const KINDS: readonly Kind[] = ["CONNECT on unix socket", "CONNECT, 1-byte echo, close", "CONNECT on mTLS"];
const BUILDS = ["culvert", "before"] as const;
/** Of each build in one round, a second each. */
const TURNS = 8;
const WARM_UP_SECONDS = 3;

/**
 * Connections through this build and that of `--against`. Two processes of one build differ by 5 to 10 %, and a machine
 * differs as much from one second to the next: so each round has new processes, and the builds take turns of a second.
 */
export async function against(bench: Bench): Promise<Row[]> {
  const { against: clone, rounds: count } = bench.settings;
  if (clone === undefined) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  const { ports } = bench.around;
  const rounds = new Rounds();
  for (let round = 0; round < count; round++) {
    bench.say(`against ${clone}, round ${round + 1}`);
    await using culvert = await startCulvertPair(ports, { name: "culvert" });
    await using before = await withBuildOf(clone, () => startCulvertPair(ports, { name: "before" }));
    const started = { culvert, before };
    const order = round % 2 === 0 ? BUILDS : BUILDS.toReversed();
    const sample = async (kind: Kind, seconds: number, name: (typeof BUILDS)[number], into: Rounds) => {
      const contender = started[name];
      const dial = kind === "CONNECT on mTLS" ? contender.dialTls?.("echo") : contender.dial("echo");
      if (dial === undefined) return;
      await sampleRate({ ...bench, settings: { ...bench.settings, seconds } }, contender, kind, dial, into);
    };
    for (const kind of KINDS) {
      for (const name of order) await sample(kind, WARM_UP_SECONDS, name, new Rounds());
      for (let turn = 0; turn < TURNS; turn++) {
        for (const name of turn % 2 === 0 ? order : order.toReversed()) await sample(kind, 1, name, rounds);
      }
    }
  }
  return KINDS.flatMap((kind) =>
    (["rate", "server", "agent"] as const).map((what): Row => {
      const figures = rounds.medians(`${kind} ${what}`);
      const unit = what === "rate" ? "/s" : "CPU µs";
      return { group: "against", label: `${kind}: ${what}, in turns`, unit, figures, goals: [] };
    }),
  );
}
