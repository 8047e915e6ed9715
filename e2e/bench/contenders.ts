import { selfSigned } from "../harness/certificate.ts";
import { TempDir } from "../harness/temp.ts";
import { BenchChild } from "./child.ts";
import { BENCH_TARGETS, type BenchTarget, type DialSpec } from "./dial-spec.ts";
import type { ConnectProxyMethods } from "./floors/connect-proxy.ts";
import type { Joining, RelayMethods } from "./floors/relay.ts";
import type { LoadMethods } from "./load.ts";
import type { TargetMethods } from "./targets.ts";

/**
 * Whose figures stand beside each other: the product, its build in another clone (`--against`), itself without what is
 * measured, the peers (`--peers`), the floors, and the load generator alone.
 */
export type ContenderName =
  | "culvert"
  | "before"
  | "without"
  | "konnectivity"
  | "quietKonnectivity"
  | "frp"
  | "pipe"
  | "corked"
  | "bare"
  | "proxy"
  | "direct";

export interface Contender extends AsyncDisposable {
  readonly name: ContenderName;
  /** The way to a target from the callers' unix socket (direct: from TCP). */
  dial(target: BenchTarget): DialSpec;
  /** The same over mutual TLS, where there is such a listener. */
  dialTls?(target: BenchTarget): DialSpec;
  /** The process at the callers' side, the one at the targets', and one on the way where there are three. */
  readonly near?: number;
  readonly far?: number;
  readonly between?: number;
}

/** Where the targets listen. */
export type Ports = Readonly<Record<BenchTarget, number>>;

/**
 * The processes around every contender: two load generators and two sets of targets, so that an echo is not measured in
 * the loop that moves the bulk.
 */
export class Surroundings implements AsyncDisposable {
  readonly dir = new TempDir();
  readonly bulkLoad = new BenchChild<LoadMethods>("load.ts");
  readonly echoLoad = new BenchChild<LoadMethods>("load.ts");
  readonly bulkTargets = new BenchChild<TargetMethods>("targets.ts");
  readonly echoTargets = new BenchChild<TargetMethods>("targets.ts");
  #ports: Ports | undefined;

  get ports(): Ports {
    if (!this.#ports) throw new Error("the targets are not up yet");
    return this.#ports;
  }

  async start(): Promise<void> {
    const [bulk, echo] = await Promise.all([this.bulkTargets.call("start", {}), this.echoTargets.call("start", {})]);
    this.#ports = { ...bulk, echo: echo.echo };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const children = [this.bulkLoad, this.echoLoad, this.bulkTargets, this.echoTargets];
    await Promise.all(children.map((child) => child[Symbol.asyncDispose]()));
    this.dir[Symbol.dispose]();
  }
}

/** A raw relay pair as two processes, or three: the one between them reads TLS and writes TLS. */
export async function startRelayPair(joining: Joining, around: Surroundings, processes: 2 | 3 = 2): Promise<Contender> {
  const near = new BenchChild<RelayMethods>("floors/relay.ts");
  const far = new BenchChild<RelayMethods>("floors/relay.ts");
  const certificate = await selfSigned();
  const ports = BENCH_TARGETS.map((target) => around.ports[target]);
  const farPorts = await far.call("far", { ports, certificate, joining });
  const between = processes === 3 ? new BenchChild<RelayMethods>("floors/relay.ts") : undefined;
  const nextPorts = between ? await between.call("between", { ports: farPorts, certificate, joining }) : farPorts;
  const path = (target: BenchTarget) => around.dir.file(`${joining}-${processes}-${target}`);
  const ways = BENCH_TARGETS.map((target, i) => ({ path: path(target), port: nextPorts[i] ?? 0 }));
  await near.call("near", { ways, ca: certificate.cert, joining });
  return {
    name: joining,
    near: near.pid,
    far: far.pid,
    ...(between ? { between: between.pid } : {}),
    dial: (target) => ({ path: path(target) }),
    async [Symbol.asyncDispose]() {
      await Promise.all([near, between, far].map((child) => child?.[Symbol.asyncDispose]()));
    },
  };
}

export async function startConnectProxy(around: Surroundings): Promise<Contender> {
  const proxy = new BenchChild<ConnectProxyMethods>("floors/connect-proxy.ts");
  const path = around.dir.file("proxy");
  await proxy.call("start", { path });
  return {
    name: "proxy",
    near: proxy.pid,
    dial: (target) => ({ path, connect: `127.0.0.1:${around.ports[target]}` }),
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

/** The load generator and the targets without anything between them. */
export function direct(around: Surroundings): Contender {
  return {
    name: "direct",
    dial: (target) => ({ port: around.ports[target] }),
    async [Symbol.asyncDispose]() {},
  };
}
