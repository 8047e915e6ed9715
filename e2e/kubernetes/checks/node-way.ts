import { setTimeout as sleep } from "node:timers/promises";
import { atFull, WHOLE_MATRICES } from "../../harness/counts.ts";
import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { AT_NODE, PORTS } from "../world/addresses.ts";
import { lanesWith } from "../world/lanes.ts";
import { bootstrap } from "./bootstrap.ts";
import { besideCuts, type Cut } from "./cut-path.ts";
import { nothingLeftBehind } from "./leftovers.ts";
import { onNode, withNodePort } from "./node-port.ts";

/** Events while the connection is cut. */
const EVENTS = 30;
/** Ten minutes where there is time: then each cut comes after minutes of an event a second. */
const QUIET_EVENTS = atFull(190, 0, 0);
const EVENT_MS = 1_000;
const CUTS: readonly (readonly Cut[])[] = WHOLE_MATRICES
  ? [[{ at: 0.5 }], [{ at: 0.5 }], [{ at: 0.5 }]]
  : [[{ at: 0.2 }, { at: 0.45 }, { at: 0.7 }]];
const ANSWERED_MS = 15_000;

/** The other way round: what programs of the node ask of kube-apiserver (docs/node-to-control-plane.md). */
export const NODE_WAY: readonly Check[] = [
  { name: "kube-apiserver's version, from the node", deadlineMs: 60_000, lanes: lanesWith("culvert"), run: version },
  {
    name: "get --watch from the node, connection cut 3 times",
    deadlineMs: atFull(20 * 60_000, 120_000, 120_000),
    lanes: lanesWith("culvert"),
    run: (stage) => withNodePort(stage, () => watch(stage)),
  },
  {
    name: "a kubelet's first certificate, from the node",
    deadlineMs: 60_000,
    lanes: lanesWith("culvert"),
    run: (stage) => withNodePort(stage, () => bootstrap(stage)),
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
  const { admin } = stage.world.pki;
  using folder = stage.world.folder();
  const user = { "client-certificate": admin.cert, "client-key": admin.key };
  const here = onNode(stage, folder.file("kubeconfig"), user);
  await using watching = here.start(["get", "configmaps", "--watch", "-o", "name", "-l", "watched=yes"]);
  const startedAt = performance.now();
  const names: string[] = [];
  const make = async (count: number, everyMs: number): Promise<void> => {
    for (const last = names.length + count; names.length < last; ) {
      const name = `watched-${names.length + 1}`;
      const metadata = { name, namespace: "default", labels: { watched: "yes" } };
      await stage.kubectl.create([{ apiVersion: "v1", kind: "ConfigMap", metadata }]);
      names.push(name);
      await sleep(everyMs);
    }
  };
  const makeAll = async (): Promise<void> => {
    await make(EVENTS, 0);
    await waitFor(() => watching.log.length >= names.length, {
      deadlineMs: ANSWERED_MS,
      what: `${names.length} events`,
    });
    expect(watching.running, "a watch that goes on", watching.tail());
  };
  try {
    for (const cuts of CUTS) {
      await make(QUIET_EVENTS, EVENT_MS);
      const before = names.length;
      await besideCuts(stage, cuts, makeAll(), () => (names.length - before) / EVENTS);
    }
    await watching.stop();
    await nothingLeftBehind(stage.world.culvert);
    const wanted = names.map((name) => `configmap/${name}`).join("\n");
    expect(watching.log.join("\n") === wanted, "each event once", watching.log.join("\n"));
    const minutes = ((performance.now() - startedAt) / 60_000).toFixed(1);
    return { printed: `${names.length} events in order, over one watch, in ${minutes} minutes` };
  } finally {
    await stage.kubectl.run(["delete", "configmaps", "-l", "watched=yes", "--wait=false"]);
  }
}
