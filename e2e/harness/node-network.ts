import { readFileSync } from "node:fs";
import { ip, removeAll, sweepStale, writeSettings } from "../kubernetes/world/ip-netns.ts";
import { Namespace } from "../kubernetes/world/namespace.ts";
import { started } from "./started.ts";

/** Where the control plane takes agents, and its only address that the node has a route to. */
export const CONTROL_PLANE = "10.94.1.1";
/** The address that programs of the node dial. */
export const AT_NODE = "100.64.30.10";
export const PODS = "10.94.2.0/24";
export const POD = "10.94.2.2";

const PREFIX = "culvert-node-";
let made = 0;

/**
 * A node that has a route to the server's port for agents and to nothing else of its control plane, a pod of it, and a
 * neighbour that knows a route through it:
 *
 * ```
 *  control plane 10.94.1.1 ──veth── 10.94.1.2  node  10.94.2.1 ──veth── 10.94.2.2 pod
 *                                                    10.94.3.1 ──veth── 10.94.3.2 neighbour
 * ```
 */
export class NodeNetwork implements AsyncDisposable {
  readonly controlPlane: Namespace;
  readonly node: Namespace;
  readonly pod: Namespace;
  readonly neighbour: Namespace;

  private constructor(prefix: string) {
    this.controlPlane = new Namespace(`${prefix}control`);
    this.node = new Namespace(`${prefix}node`);
    this.pod = new Namespace(`${prefix}pod`);
    this.neighbour = new Namespace(`${prefix}beside`);
  }

  /** Removes what a killed run left behind, and creates the namespaces. */
  static async create(): Promise<NodeNetwork> {
    await sweepStale(PREFIX, isRunOfOurs);
    const network = new NodeNetwork(`${PREFIX}${process.pid}-${++made}-`);
    return await started(network, () => network.#build());
  }

  async #build(): Promise<void> {
    const { controlPlane, node, pod, neighbour } = this;
    for (const { name } of this.#all()) {
      writeSettings(name, ["127.0.0.1 localhost"]);
      await ip("netns", "add", name);
      await ip("-n", name, "link", "set", "lo", "up");
    }
    await this.#join(controlPlane, "10.94.1.1", "eth1", "10.94.1.2");
    await this.#join(pod, POD, "eth2", "10.94.2.1");
    await this.#join(neighbour, "10.94.3.2", "eth3", "10.94.3.1");
    await node.must(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    await ip("-n", pod.name, "route", "add", "default", "via", "10.94.2.1");
    await ip("-n", neighbour.name, "route", "add", AT_NODE, "via", "10.94.3.1");
  }

  async #join({ name }: Namespace, address: string, there: string, atNode: string): Promise<void> {
    const node = this.node.name;
    await ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", there, "netns", node);
    for (const [where, device, own] of [
      [name, "eth0", address],
      [node, there, atNode],
    ] as const) {
      await ip("-n", where, "address", "add", `${own}/24`, "dev", device);
      await ip("-n", where, "link", "set", device, "up");
    }
  }

  #all(): Namespace[] {
    return [this.controlPlane, this.node, this.pod, this.neighbour];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeAll(this.#all().map(({ name }) => name));
  }
}

/** Is this process still running, and is it ours? Process ids are reused. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("e2e/");
  } catch {
    return false;
  }
}
