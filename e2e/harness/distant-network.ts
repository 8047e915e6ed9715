import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { goProgram } from "../kubernetes/go-build.ts";
import { ip, removeAll, sweepStale, writeSettings } from "../kubernetes/world/ip-netns.ts";
import { Namespace } from "../kubernetes/world/namespace.ts";
import type { Program } from "./program.ts";
import { started } from "./started.ts";

const PREFIX = "culvert-distant-";
const DEVICE = "far0";
/** Everything listens here. */
export const HERE = "10.95.0.1";
/** The same machine, at a distance: the address of every name. */
const FAR = "10.95.0.2";
/** The second address of every name: nobody answers, not even with a refusal. */
const NOWHERE = "10.95.0.9";
let made = 0;

export interface Distance {
  /** Round trip, ms. `connect` takes as long. */
  readonly rttMs: number;
  /** Each connection loses its first SYN. The kernel sends another one after a second. */
  readonly losesSyn: boolean;
}

/** A network in which all names are machines at a distance, each with a second address that leads nowhere. */
export class DistantNetwork implements AsyncDisposable {
  readonly inside = new Namespace(`${PREFIX}${process.pid}-${++made}`);
  #line: Program | undefined;

  static async create(names: readonly string[], distance: Distance): Promise<DistantNetwork> {
    await sweepStale(PREFIX, isRunOfOurs);
    const relay = await goProgram(join(ROOT, "e2e/harness/distance"));
    return await started(new DistantNetwork(), (network) => network.#build(names, relay, distance));
  }

  async #build(names: readonly string[], relay: string, { rttMs, losesSyn }: Distance): Promise<void> {
    const { inside } = this;
    writeSettings(inside.name, ["127.0.0.1 localhost", ...[FAR, NOWHERE].map((at) => `${at} ${names.join(" ")}`)]);
    await ip("netns", "add", inside.name);
    await ip("-n", inside.name, "link", "set", "lo", "up");
    const options = [`-device=${DEVICE}`, `-far=${FAR}`, `-delay=${rttMs / 2}ms`, `-loses-syn=${losesSyn}`];
    this.#line = inside.start("line", [relay, ...options]);
    await this.#line.waitForLog("device is open");
    await ip("-n", inside.name, "address", "add", `${HERE}/24`, "dev", DEVICE);
    await ip("-n", inside.name, "link", "set", DEVICE, "up");
  }

  /** How many SYNs were lost. */
  get lost(): number {
    return this.#line?.log.filter((line) => line === "SYN is lost").length ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#line?.kill();
    await removeAll([this.inside.name]);
  }
}

/** Is this process still running, and is it ours? Process ids are reused. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("processes/distant");
  } catch {
    return false;
  }
}
