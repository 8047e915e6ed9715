import { writeFileSync } from "node:fs";
import type { Stage } from "../check.ts";
import { AT_NODE, PORTS } from "../world/addresses.ts";
import { Kubectl } from "../world/kubectl.ts";

/** While the act lasts, the node's agent has a port that leads to kube-apiserver. */
export async function withNodePort<T>({ world }: Stage, act: () => Promise<T>): Promise<T> {
  const { culvert } = world;
  const restart = async (more: Readonly<Record<string, string>> = {}): Promise<void> => {
    await culvert.agent.stop();
    culvert.startAgent(more);
    await culvert.agent.waitForLog("uplink connected");
  };
  const target = `${PORTS.kubeApiserver}:127.0.0.1:${PORTS.kubeApiserver}`;
  await restart({ bindAddress: AT_NODE, interface: "lo", target });
  try {
    return await act();
  } finally {
    await restart();
  }
}

/** kubectl on the node, which reaches kube-apiserver by the agent's port. Its kubeconfig is written to `path`. */
export function onNode({ world, signal }: Stage, path: string, user: Readonly<Record<string, string>>): Kubectl {
  const server = `https://${AT_NODE}:${PORTS.kubeApiserver}`;
  const config = {
    ...{ apiVersion: "v1", kind: "Config", "current-context": "node" },
    clusters: [{ name: "world", cluster: { server, "certificate-authority": world.pki.kubeApiserver.ca } }],
    users: [{ name: "user", user }],
    contexts: [{ name: "node", context: { cluster: "world", user: "user" } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return new Kubectl(world.network.node, world.assets.kubectl, path, signal);
}
