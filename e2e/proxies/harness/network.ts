import { readFileSync } from "node:fs";
import { started } from "../../harness/started.ts";
import { ip, removeAll, sweepStale, writeSettings } from "../../kubernetes/world/ip-netns.ts";
import { Namespace } from "../../kubernetes/world/namespace.ts";
import { BORDER, INSIDE, NAMES, PORTS, SERVER } from "./addresses.ts";

const PREFIX = "culvert-proxies-";
const LOOPBACK = "127.0.0.1 localhost";
let made = 0;

/**
 * A company's network, and what is outside of it:
 *
 * ```
 *  inside  10.93.0.2 ──veth──┃ 10.93.0.1     the company's proxies and its KDC
 *                            ┃ 203.0.113.10  culvert's server
 *                            gate: lets connections to the proxies and the KDC in; counts all others and drops them
 * ```
 */
export class CorporateNetwork implements AsyncDisposable {
  readonly inside: Namespace;
  readonly outside: Namespace;

  private constructor(prefix: string) {
    this.inside = new Namespace(`${prefix}inside`);
    this.outside = new Namespace(`${prefix}outside`);
  }

  /** Removes what a killed run left behind, and creates the namespaces. */
  static async create(): Promise<CorporateNetwork> {
    await sweepStale(PREFIX, isRunOfOurs);
    const network = new CorporateNetwork(`${PREFIX}${process.pid}-${++made}-`);
    return await started(network, () => network.#build());
  }

  /** Number of packets that tried to bypass the proxies. */
  async triedToPass(): Promise<number> {
    const { stdout } = await this.outside.must(["nft", "list", "counter", "ip", "gate", "beside"]);
    return Number(/packets (\d+)/.exec(stdout)?.[1]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeAll([this.inside.name, this.outside.name]);
  }

  async #build(): Promise<void> {
    const { inside, outside } = this;
    const company = [`${BORDER} ${NAMES.proxy} ${NAMES.kdc}`, `${SERVER} ${NAMES.serverKnownInside}`];
    writeSettings(inside.name, [LOOPBACK, ...company]);
    writeSettings(outside.name, [LOOPBACK, ...company, `${SERVER} ${NAMES.server}`]);
    for (const { name } of [inside, outside]) {
      await ip("netns", "add", name);
      await ip("-n", name, "link", "set", "lo", "up");
    }
    await ip(
      "link",
      "add",
      "eth0",
      "netns",
      inside.name,
      "type",
      "veth",
      "peer",
      "name",
      "eth0",
      "netns",
      outside.name,
    );
    for (const [{ name }, address] of [[inside, INSIDE] as const, [outside, BORDER] as const]) {
      await ip("-n", name, "address", "add", `${address}/24`, "dev", "eth0");
      await ip("-n", name, "link", "set", "eth0", "up");
    }
    await ip("-n", outside.name, "address", "add", `${SERVER}/32`, "dev", "lo");
    // With a route, its packets reach the border.
    await ip("-n", inside.name, "route", "add", "default", "via", BORDER);
    await this.#closeGate();
  }

  async #closeGate(): Promise<void> {
    const ruleset = `table ip gate {
      counter beside {}
      chain input {
        type filter hook input priority 0; policy accept;
        iif lo accept
        ct state established,related accept
        ip daddr ${BORDER} tcp dport { ${Object.values(PORTS).join(", ")} } accept
        ip daddr ${BORDER} udp dport ${PORTS.kerberos} accept
        meta l4proto { tcp, udp } counter name beside
        drop
      }
    }`;
    await this.outside.must(["nft", "-f", "-"], { stdin: ruleset });
  }
}

/** Is this process still running, and is it ours? Process ids are reused. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("e2e/proxies");
  } catch {
    return false;
  }
}
