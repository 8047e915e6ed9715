import { readFileSync } from "node:fs";
import { createSite } from "../../harness/binaries.ts";
import { serverFiles } from "../../harness/pki-files.ts";
import { cpuSeconds } from "../../harness/proc.ts";
import { type Bench, rotated } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { ContenderName } from "../contenders.ts";
import type { DialSpec } from "../dial-spec.ts";
import { GoDialer } from "../go-dialer.ts";
import { Pair } from "../products/pair.ts";
import { listenerOf, type Product, WAYS, type Way } from "../products/product.ts";
import { atLeast, atMost, Rounds, type Row, withPeer } from "../rows.ts";
import { percentile } from "../stats.ts";
import type { TargetMethods } from "../targets.ts";

const ONE_BY_ONE = 300;
const AT_ONCE = 1_000;
const BEFORE_WARM = 2_000;
const WARM = 2_000;
const IN_FLIGHT = 50;

/** The dialled processes of a sample, which were started for it. */
interface Dialled extends AsyncDisposable {
  readonly name: ContenderName;
  readonly spec: DialSpec;
  readonly near?: number;
  readonly far?: number;
}

/** Connections as kube-apiserver makes them, right after the start of server and agent and when both are warm. */
export async function dials(bench: Bench): Promise<Row[]> {
  const dialer = await GoDialer.build();
  const rounds = new Rounds();
  const products = bench.products.filter(({ takesConnect }) => takesConnect);
  for (let round = 0; round < bench.settings.rounds; round++) {
    for (const way of WAYS) {
      const starts = products.map((product) => () => startPair(bench, product, way));
      for (const start of rotated([...starts, () => startBare(way)], round)) {
        await sample(bench, dialer, start, way, rounds);
      }
    }
  }
  return WAYS.flatMap((way) => toRows(rounds, way));
}

async function sample(bench: Bench, dialer: GoDialer, start: () => Promise<Dialled>, way: Way, rounds: Rounds) {
  const run = async ({ name, spec }: Dialled, count: number, inFlight: number) => {
    const result = await dialer.run({ dial: spec, protocol: "http1", what: "dials", count, inFlight });
    const { failures, firstFailure } = result;
    if (failures > 0) bench.say(`${name}: ${failures} of ${count} dials failed (${way}): ${firstFailure}`);
    return result;
  };
  const many = async (dialled: Dialled, count: number, when: "cold" | "warm") => {
    const { name, near, far } = dialled;
    const before = { near: cpuMs(near), far: cpuMs(far) };
    const { ms, seconds } = await run(dialled, count, IN_FLIGHT);
    rounds.add(name, `${way} ${when} rate`, ms.length / seconds);
    if (near) rounds.add(name, `${way} ${when} near`, (cpuMs(near) - before.near) / count);
    if (far) rounds.add(name, `${way} ${when} far`, (cpuMs(far) - before.far) / count);
  };
  {
    await using fresh = await start();
    bench.say(`dials over ${way}: ${fresh.name}`);
    const { ms } = await run(fresh, ONE_BY_ONE, 1);
    rounds.add(fresh.name, `${way} one by one`, percentile(ms, 50));
  }
  await using fresh = await start();
  await many(fresh, AT_ONCE, "cold");
  await run(fresh, BEFORE_WARM, IN_FLIGHT);
  await many(fresh, WARM, "warm");
}

function cpuMs(pid: number | undefined): number {
  return pid === undefined ? 0 : cpuSeconds(pid) * 1_000;
}

function toRows(rounds: Rounds, way: Way): Row[] {
  const row = (label: string, unit: string, figure: string): Row => {
    const figures = rounds.medians(`${way} ${figure}`);
    const goal = unit === "/s" ? atLeast : atMost;
    return { group: "dials", label, unit, figures, goals: withPeer(figures, (peer) => goal(figures, 1, peer)) };
  };
  const first = `${AT_ONCE} dials, ${IN_FLIGHT} in flight, right after start, ${way}`;
  const later = `${WARM} dials, ${IN_FLIGHT} in flight, after ${AT_ONCE + BEFORE_WARM} others, ${way}`;
  return [
    row(`${ONE_BY_ONE} dials one after the other, ${way}: p50`, "ms", "one by one"),
    row(first, "/s", "cold rate"),
    row(`${first}: each costs the server`, "CPU ms", "cold near"),
    row(`${first}: each costs the agent`, "CPU ms", "cold far"),
    row(later, "/s", "warm rate"),
    row(`${later}: each costs the server`, "CPU ms", "warm near"),
    row(`${later}: each costs the agent`, "CPU ms", "warm far"),
  ];
}

async function startPair(bench: Bench, product: Product, way: Way): Promise<Dialled> {
  const pair = await Pair.start(product, bench.around, way);
  const { name, near, far } = pair;
  return { name, near, far, spec: pair.dial("echo"), [Symbol.asyncDispose]: () => pair[Symbol.asyncDispose]() };
}

/** A listener of Node alone that answers every CONNECT by itself: what the handshake costs any program on Node. */
async function startBare(way: Way): Promise<Dialled> {
  const site = await createSite();
  const child = new BenchChild<TargetMethods>("targets.ts");
  const files = serverFiles(site.dir.path);
  const [ca, cert, key] = [files.serverCaCert, files.serverCert, files.serverKey].map((file) =>
    readFileSync(file, "utf8"),
  ) as [string, string, string];
  const { port } = await child.call("startResponders", { path: site.uds, tls: { ca, cert, key } });
  return {
    name: "bare",
    near: child.pid,
    spec: { ...listenerOf(site, way), ...(way === "unix socket" ? {} : { port }), connect: "127.0.0.1:1" },
    async [Symbol.asyncDispose]() {
      await child[Symbol.asyncDispose]();
      site[Symbol.dispose]();
    },
  };
}
