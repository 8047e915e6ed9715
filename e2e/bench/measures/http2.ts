import { cpuSeconds } from "../../harness/proc.ts";
import { waitFor } from "../../harness/wait.ts";
import { type Bench, rotated } from "../bench.ts";
import { GoDialer } from "../go-dialer.ts";
import { Pair } from "../products/pair.ts";
import { type Plan, type Product, WAYS, type Way } from "../products/product.ts";
import { atLeast, atMost, Rounds, type Row, withPeer } from "../rows.ts";
import { percentile } from "../stats.ts";

const ONE_BY_ONE = 300;
const WARM_UP = 1_000;
const DIALS = 2_000;
const IN_FLIGHT = 50;

/** Konnectivity has no HTTP/2 CONNECT, so it is compared with its gRPC. */
const PROTOCOLS = ["grpc", "h2"] as const;
type Protocol = (typeof PROTOCOLS)[number];
const TITLES = { grpc: "gRPC", h2: "HTTP/2 CONNECT" } as const;

/** Callers over HTTP/2: dials one by one and many at once, and bulk both ways. */
export async function http2(bench: Bench): Promise<Row[]> {
  const dialer = await GoDialer.build();
  const rounds = new Rounds();
  const products = bench.products.flatMap(({ overHttp2 }) => overHttp2 ?? []);
  for (let round = 0; round < bench.settings.rounds; round++) {
    for (const way of WAYS) {
      for (const product of rotated(products, round)) await sampleProduct(bench, dialer, product, way, rounds);
    }
  }
  return WAYS.flatMap((way) => PROTOCOLS.flatMap((protocol) => toRows(rounds, way, protocol)));
}

async function sampleProduct(
  bench: Bench,
  dialer: GoDialer,
  product: Product,
  way: Way,
  rounds: Rounds,
): Promise<void> {
  const protocols = product.name === "konnectivity" ? (["grpc"] as const) : PROTOCOLS;
  const echoed = async (_: unknown, plan: Plan): Promise<number> => {
    const dialOne = () =>
      dialer.run({
        dial: plan.dial("echo"),
        protocol: protocols[protocols.length - 1] ?? "grpc",
        what: "dials",
        count: 1,
        inFlight: 1,
      });
    await waitFor(async () => (await dialOne()).failures === 0, { deadlineMs: 30_000, everyMs: 100 });
    return 0;
  };
  await using pair = await Pair.start(product, bench.around, way, echoed);
  const cpu = () => cpuSeconds(pair.near) + cpuSeconds(pair.far);
  for (const protocol of protocols) {
    bench.say(`${TITLES[protocol]} over ${way}: ${product.name}`);
    // Figures of Konnectivity's gRPC stand beside both protocols.
    const names = product.name === "konnectivity" ? PROTOCOLS : [protocol];
    const add = (figure: string, value: number) => {
      for (const name of names) rounds.add(product.name, `${way} ${name} ${figure}`, value);
    };
    const dials = async (count: number, inFlight: number) => {
      const result = await dialer.run({ dial: pair.dial("echo"), protocol, what: "dials", count, inFlight });
      const { failures, firstFailure } = result;
      if (failures > 0) bench.say(`${product.name}: ${failures} of ${count} dials failed: ${firstFailure}`);
      return result;
    };
    await dials(WARM_UP, IN_FLIGHT);
    add("one by one", percentile((await dials(ONE_BY_ONE, 1)).ms, 50));
    const before = cpu();
    const { ms, seconds } = await dials(DIALS, IN_FLIGHT);
    add("rate", ms.length / seconds);
    add("CPU of a dial", ((cpu() - before) * 1_000) / DIALS);
    for (const what of ["down", "up"] as const) {
      const dial = pair.dial(what === "down" ? "source" : "sink");
      const begun = cpu();
      const moved = await dialer.run({ dial, protocol, what, seconds: bench.settings.seconds });
      add(what, moved.bytes / moved.seconds / 1e6);
      add(`CPU ${what}`, ((cpu() - begun) / moved.bytes / 1.2) * 1e9);
    }
  }
}

function toRows(rounds: Rounds, way: Way, protocol: Protocol): Row[] {
  const title = `${TITLES[protocol]}, ${way}`;
  const row = (label: string, unit: string, figure: string): Row => {
    const figures = rounds.medians(`${way} ${protocol} ${figure}`);
    const goal = unit === "/s" || unit === "MB/s" ? atLeast : atMost;
    return { group: "http2", label, unit, figures, goals: withPeer(figures, (peer) => goal(figures, 1, peer)) };
  };
  return [
    row(`${title}: ${ONE_BY_ONE} dials one after the other: p50`, "ms", "one by one"),
    row(`${title}: ${DIALS} dials, ${IN_FLIGHT} in flight`, "/s", "rate"),
    row(`${title}: each costs both processes`, "CPU ms", "CPU of a dial"),
    row(`${title}: one stream down`, "MB/s", "down"),
    row(`${title}: one stream down: both processes`, "CPU s/GB", "CPU down"),
    row(`${title}: one stream up`, "MB/s", "up"),
    row(`${title}: one stream up: both processes`, "CPU s/GB", "CPU up"),
  ];
}
