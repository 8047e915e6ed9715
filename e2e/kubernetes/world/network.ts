import { started } from "../../harness/started.ts";
import { isRunOfOurs } from "../run-of-ours.ts";
import { CONTROL_PLANE, INSTALLED_SERVERS, NODE, NOWHERE, PORTS, SERVICES } from "./addresses.ts";
import { ip, removeAll, sweepStale, writeSettings } from "./ip-netns.ts";
import { Namespace } from "./namespace.ts";

const LOOPBACK = ["127.0.0.1 localhost", "::1 localhost"];

/**
 * Three network namespaces:
 *
 * ```
 *  control plane  10.91.1.2 ──veth── between ──veth── 10.91.2.2  node
 *                                      │
 *                 forwards the agent's connections to the server's port for agents, and nothing else;
 *                 a load balancer's address may be there
 * ```
 */
export class Network implements AsyncDisposable {
  readonly controlPlane: Namespace;
  readonly node: Namespace;
  /** The gate, where the agent's connection is forwarded. */
  readonly between: Namespace;

  constructor(prefix: string) {
    this.controlPlane = new Namespace(`${prefix}control`);
    this.between = new Namespace(`${prefix}between`);
    this.node = new Namespace(`${prefix}node`);
  }

  async build(): Promise<void> {
    const { controlPlane, node } = this;
    for (const { name } of this.#all()) await ip("netns", "add", name);
    for (const { name } of this.#all()) await ip("-n", name, "link", "set", "lo", "up");
    await this.#join(controlPlane, 1, CONTROL_PLANE);
    await this.#join(node, 2, NODE);
    const service = (address: string) => ip("-n", node.name, "address", "add", address, "dev", "lo");
    for (const address of [SERVICES.web, SERVICES.webhook, SERVICES.echoes]) await service(address);
    await ip("-n", this.between.name, "route", "add", SERVICES.range, "via", NODE.ipv4);
    // With a route its packets reach the gate, which drops them without a word.
    await ip("-n", this.between.name, "route", "add", NOWHERE.blackHole, "via", CONTROL_PLANE.ipv4);
    await ip("-n", node.name, "route", "add", "unreachable", NOWHERE.unroutable);
    for (const key of ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]) {
      await this.between.must(["sh", "-c", `echo 1 > /proc/sys/net/${key}`]);
    }
    writeSettings(controlPlane.name, [...LOOPBACK, `${CONTROL_PLANE.ipv4} ${INSTALLED_SERVERS.join(" ")}`]);
    writeSettings(node.name, [...LOOPBACK, `${NODE.ipv4} ${NODE.name}`]);
    await this.close();
  }

  /**
   * Nothing passes but what agents dial, and the answers to it. With a balancer they may dial its address as well, and
   * are passed on.
   */
  async close(agentsPort: number = PORTS.agents, balancer?: Balancer): Promise<void> {
    await this.#gate([
      "policy drop",
      "ct state established,related accept",
      `iifname "to-node" ip daddr ${CONTROL_PLANE.ipv4} tcp dport ${agentsPort} accept`,
    ]);
    const to = `${CONTROL_PLANE.ipv4}:${agentsPort}`;
    await this.#chain("balancer", [
      "type nat hook prerouting priority dstnat",
      ...(balancer ? [`ip daddr ${balancer.address} tcp dport ${balancer.port} dnat ip to ${to}`] : []),
    ]);
  }

  /** Resets connections that send, as a firewall that has lost its state does; new connections are refused. */
  async reset(): Promise<void> {
    await this.#gate(["policy drop", "meta l4proto tcp reject with tcp reset"]);
  }

  /** The line between the node and everything else has this rate, each way; `undefined`: it is fast again. */
  async slow(bytesPerSecond: number | undefined): Promise<void> {
    const ends = [
      [this.node, "eth0"],
      [this.between, "to-node"],
    ] as const;
    for (const [where, device] of ends) {
      if (bytesPerSecond === undefined) await where.must(["tc", "qdisc", "del", "dev", device, "root"]);
      else {
        const rate = ["rate", `${bytesPerSecond * 8}bit`, "burst", "8kb", "latency", "500ms"];
        await where.must(["tc", "qdisc", "replace", "dev", device, "root", "tbf", ...rate]);
      }
    }
  }

  /** As if there were no gate: for the same checks without culvert. */
  async open(): Promise<void> {
    await this.#gate(["policy accept"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeAll(this.#all().map(({ name }) => name));
  }

  #all(): Namespace[] {
    return [this.controlPlane, this.between, this.node];
  }

  async #join({ name }: Namespace, subnet: number, { ipv4, ipv6 }: { ipv4: string; ipv6: string }): Promise<void> {
    const between = this.between.name;
    const there = subnet === 1 ? "to-control" : "to-node";
    await ip("link", "add", there, "netns", between, "type", "veth", "peer", "name", "eth0", "netns", name);
    const sides = [
      { name, link: "eth0", ipv4, ipv6 },
      { name: between, link: there, ipv4: `10.91.${subnet}.1`, ipv6: `fd91:${subnet}::1` },
    ];
    for (const side of sides) {
      await ip("-n", side.name, "address", "add", `${side.ipv4}/24`, "dev", side.link);
      // Without duplicate address detection an address is there at once.
      await ip("-n", side.name, "address", "add", `${side.ipv6}/64`, "dev", side.link, "nodad");
      await ip("-n", side.name, "link", "set", side.link, "up");
    }
    await ip("-n", name, "route", "add", "default", "via", `10.91.${subnet}.1`);
    await ip("-n", name, "route", "add", "default", "via", `fd91:${subnet}::1`);
  }

  async #gate(rules: readonly string[]): Promise<void> {
    await this.#chain("gate", ["type filter hook forward priority 0", ...rules]);
  }

  /** In place of the one of this name that is there. */
  async #chain(name: string, rules: readonly string[]): Promise<void> {
    const table = `table inet ${name} {\nchain rules {\n${rules.join("\n")}\n}\n}`;
    const ruleset = `table inet ${name} {}\ndelete table inet ${name}\n${table}\n`;
    await this.between.must(["nft", "-f", "-"], { stdin: ruleset });
  }
}

/** An address and a port that lead to the server. */
export interface Balancer {
  readonly address: string;
  readonly port: number;
}

const PREFIX = "culvert-e2e-";

/** Removes what a run left behind that never got to clean up, and builds the namespaces. */
export async function createNetwork(): Promise<Network> {
  await sweepStale(PREFIX, isRunOfOurs);
  return await started(new Network(`${PREFIX}${process.pid}-`), (network) => network.build());
}
