import { readFileSync } from "node:fs";
import { ip, removeAll, sweepStale, writeSettings } from "../kubernetes/world/ip-netns.ts";
import { Namespace } from "../kubernetes/world/namespace.ts";
import { started } from "./started.ts";

const PREFIX = "culvert-lossy-";
/** Everything listens here. */
export const HERE = "10.94.0.1";
/** The second address of every name: nobody answers, not even with a refusal. */
const NOWHERE = "10.94.0.9";

/**
 * A network in which each connection loses its first SYN, so that it stands a second later, when the kernel sends
 * another one. Each name has a second address that leads nowhere.
 */
export class LossyNetwork implements AsyncDisposable {
  readonly inside = new Namespace(`${PREFIX}${process.pid}-0`);

  static async create(names: readonly string[]): Promise<LossyNetwork> {
    await sweepStale(PREFIX, isRunOfOurs);
    return await started(new LossyNetwork(), (network) => network.#build(names));
  }

  async #build(names: readonly string[]): Promise<void> {
    const { inside } = this;
    writeSettings(inside.name, ["127.0.0.1 localhost", ...[HERE, NOWHERE].map((at) => `${at} ${names.join(" ")}`)]);
    await ip("netns", "add", inside.name);
    await ip("-n", inside.name, "link", "set", "lo", "up");
    for (const address of [HERE, NOWHERE]) await ip("-n", inside.name, "address", "add", `${address}/32`, "dev", "lo");
    const ruleset = `table ip lossy {
      set sent { type inet_service . inet_service; flags dynamic; timeout 1m; }
      counter lost {}
      chain input {
        type filter hook input priority 0; policy accept;
        ip daddr ${NOWHERE} drop
        tcp flags & (syn | ack) != syn accept
        tcp sport . tcp dport @sent accept
        ip daddr ${HERE} add @sent { tcp sport . tcp dport } counter name lost drop
      }
    }`;
    await inside.must(["nft", "-f", "-"], { stdin: ruleset });
  }

  /** How many SYNs were lost. */
  async lost(): Promise<number> {
    const { stdout } = await this.inside.must(["nft", "list", "counter", "ip", "lossy", "lost"]);
    return Number(/packets (\d+)/.exec(stdout)?.[1]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeAll([this.inside.name]);
  }
}

/** Is this process still running, and is it ours? Process ids are reused. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("lost-syn");
  } catch {
    return false;
  }
}
