import { writeFileSync } from "node:fs";
import type { TempDir } from "../../harness/temp.ts";
import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { AT_NODE, PORTS } from "../world/addresses.ts";
import { Kubectl } from "../world/kubectl.ts";
import { lanesWith } from "../world/lanes.ts";
import { whileCut } from "./cut-path.ts";

const EVENTS = 30;
const ANSWERED_MS = 15_000;

/** The other way round: what programs of the node ask of kube-apiserver (docs/node-to-control-plane.md). */
export const NODE_WAY: readonly Check[] = [
  { name: "kube-apiserver's version, from the node", deadlineMs: 60_000, lanes: lanesWith("culvert"), run: version },
  {
    name: "get --watch from the node, connection cut 3 times",
    deadlineMs: 120_000,
    lanes: lanesWith("culvert"),
    run: (stage) => withNodePort(stage, () => watch(stage)),
  },
];

/** kube-apiserver listens at the control plane's own loopback, so there is no other way. */
async function version(stage: Stage): Promise<Seen> {
  const { network, pki } = stage.world;
  const curl = ["curl", "-sS", "-m", "5", "--cacert", pki.kubeApiserver.ca];
  const url = `https://${AT_NODE}:${PORTS.kubeApiserver}/version`;
  const before = await network.node.run([...curl, url]);
  expect(before.code !== 0, "no other way", before.stdout);
  const { stdout, seconds } = await withNodePort(stage, () => network.node.must([...curl, url]));
  const { gitVersion } = JSON.parse(stdout) as { gitVersion?: string };
  expect(gitVersion?.startsWith("v1.") === true, "a version", stdout);
  return { printed: String(gitVersion), seconds };
}

async function watch(stage: Stage): Promise<Seen> {
  const { world } = stage;
  using folder = world.folder();
  const here = new Kubectl(world.network.node, world.assets.kubectl, kubeconfig(stage, folder));
  await using watching = here.start(["get", "configmaps", "--watch", "-o", "name", "-l", "watched=yes"]);
  const names = Array.from({ length: EVENTS }, (_, i) => `watched-${i + 1}`);
  let made = 0;
  const work = async (): Promise<void> => {
    for (const name of names) {
      const metadata = { name, namespace: "default", labels: { watched: "yes" } };
      await stage.kubectl.create([{ apiVersion: "v1", kind: "ConfigMap", metadata }]);
      made++;
    }
    await waitFor(() => watching.log.length >= EVENTS, { deadlineMs: ANSWERED_MS, what: `${EVENTS} events` });
    expect(watching.running, "a watch that goes on", watching.tail());
    await watching.stop(); // nothing of it may be left behind
  };
  try {
    await whileCut(stage, [{ at: 0.2 }, { at: 0.45 }, { at: 0.7 }], work(), () => made / EVENTS);
    const wanted = names.map((name) => `configmap/${name}`).join("\n");
    expect(watching.log.join("\n") === wanted, "each event once", watching.log.join("\n"));
    return { printed: `${EVENTS} events in order, over one watch` };
  } finally {
    await stage.kubectl.run(["delete", "configmaps", "-l", "watched=yes", "--wait=false"]);
  }
}

/** While the act lasts, the node's agent has a port that leads to kube-apiserver. */
async function withNodePort<T>({ world }: Stage, act: () => Promise<T>): Promise<T> {
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

function kubeconfig({ world }: Stage, folder: TempDir): string {
  const { kubeApiserver, admin } = world.pki;
  const server = `https://${AT_NODE}:${PORTS.kubeApiserver}`;
  const path = folder.file("kubeconfig");
  const config = {
    ...{ apiVersion: "v1", kind: "Config", "current-context": "node" },
    clusters: [{ name: "world", cluster: { server, "certificate-authority": kubeApiserver.ca } }],
    users: [{ name: "admin", user: { "client-certificate": admin.cert, "client-key": admin.key } }],
    contexts: [{ name: "node", context: { cluster: "world", user: "admin" } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}
