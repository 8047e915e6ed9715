import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ROOT } from "../../../shared/runtime/testing/project.ts";
import { Scrape } from "../../harness/scrape.ts";
import { findHelm } from "../../helm/harness/helm-program.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { CONTROL_PLANE, NODE, PORTS } from "../world/addresses.ts";
import { InstalledCharts, type Place } from "../world/installed-charts.ts";
import type { Kubectl } from "../world/kubectl.ts";
import { RUNNING } from "../world/objects.ts";
import type { PodProcess } from "../world/pod-process.ts";

const READY_MS = 20_000;
const NODE_OF_CONTROL = "culvert-control-control-plane";
const CONTEXTS = ["kind-culvert-control", "kind-culvert-blue"];
/** NodePorts of the example. */
const NODE_PORTS = { callers: 30090, agents: 30091 } as const;

/**
 * up.sh and try.sh of examples/kind with the real kubectl and helm. Stand-ins replace kind and docker, and what needs
 * controllers and nodes: pods are started here, and nothing waits for them.
 */
export const KIND_EXAMPLE: Check = {
  name: "examples/kind: up.sh and try.sh, with stand-ins for kind and docker",
  deadlineMs: 120_000,
  lanes: ["tcp"],
  run: upAndTry,
};

async function upAndTry(stage: Stage): Promise<Seen> {
  const { world, kubectl } = stage;
  // It has the ports that the installed server takes.
  await world.culvert.stop();
  using folder = world.folder();
  const charts = new InstalledCharts(kubectl, folder.path);
  cpSync(join(ROOT, "examples/kind"), join(folder.path, "examples/kind"), { recursive: true });
  const path = `PATH=${standIns(stage, folder.path)}:${dirname(findHelm() ?? "")}:$PATH`;
  const processes: PodProcess[] = [];
  const start = async (name: string, namespace: string, place: Place) => {
    const [object] = await kubectl.get(name, "-n", namespace);
    if (object === undefined) throw new Error(`up.sh has installed no ${name}`);
    const process = await charts.process(object, place);
    process.start();
    processes.push(process);
    await process.program.waitUntil(() => process.probe("readinessProbe"), READY_MS, `${name} to be ready`);
    return process;
  };
  try {
    await kubectl.create([nodeOfControl()]);
    await withContexts(kubectl);
    const job = { prefix: "culvert-server-pki-", namespace: "blue", place: controlPlane(stage) };
    await charts.shellWithJob(`${path} examples/kind/up.sh`, job);
    const server = await start("deployment/culvert-server", "blue", controlPlane(stage));
    await world.network.close(PORTS.agents, { address: CONTROL_PLANE.ipv4, port: NODE_PORTS.agents });
    await start("deployment/culvert-agent", "culvert", node(stage));

    const other = await world.startKubeApiserver(egress(folder.path), PORTS.otherKubeApiserver);
    try {
      const blue = other.kubectl.until(stage.signal);
      await withContexts(blue);
      await run(blue);
      const { stdout } = await blue.shell(`${path} examples/kind/try.sh`, [], { cwd: folder.path });
      const lines = stdout.match(/^line \d+/gm) ?? [];
      const wanted = Array.from({ length: 12 }, (_, i) => `line ${i + 1}`);
      expect(stdout.includes("log of hello"), "the log of the pod", stdout);
      expect(
        /-- cut\n[\s\S]*-- the network is back\n[\s\S]*line 12/.test(stdout),
        "a cut before the last line",
        stdout,
      );
      expect(lines.join() === wanted.join(), "each line once, in order", stdout);
      const resumes = await resumesOf(stage, server);
      expect(resumes > 0, "a link that was resumed", String(resumes));
      return { printed: `${lines.length} lines in order, ${resumes} resume` };
    } finally {
      await other.program.kill();
    }
  } catch (error) {
    const logs = processes.map(({ name, program }) => `── ${name}\n${program.tail()}`);
    throw new Error([(error as Error).message, ...logs].join("\n"));
  } finally {
    for (const { program } of processes) await program.stop();
    await world.network.close();
    await kubectl.run(["delete", "pod", "hello", "--ignore-not-found", "--force", "--grace-period=0"]);
    for (const [name, namespace] of [
      ["culvert-agent", "culvert"],
      ["culvert-server", "blue"],
    ]) {
      await charts.shell(`helm uninstall ${name} --namespace ${namespace} --ignore-not-found`);
    }
  }
}

/** Programs that come before the real ones on the PATH; the folder that has them. */
function standIns({ world }: Stage, folder: string): string {
  const bin = join(folder, "bin");
  mkdirSync(bin);
  const program = (name: string, script: string) =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  program("kind", "exit 0");
  // `docker exec -i NODE COMMAND…` is run where the node would forward the agent's connection.
  program("docker", `[ "$1" = exec ] || exit 0; shift 3; exec ip netns exec ${world.network.between.name} "$@"`);
  program(
    "kubectl",
    `case " $* " in *" rollout "*|*" wait "*|*" exec deploy/"*) exit 0;; esac\nexec ${world.assets.kubectl} "$@"`,
  );
  return bin;
}

async function withContexts(kubectl: Kubectl): Promise<void> {
  for (const context of CONTEXTS) {
    await kubectl.must(["config", "set-context", context, "--cluster=world", "--user=admin"]);
  }
}

/** Does with the pod what a scheduler and a kubelet would do. */
async function run(kubectl: Kubectl): Promise<void> {
  const binding = {
    apiVersion: "v1",
    kind: "Binding",
    metadata: { name: "hello", namespace: "default" },
    target: { apiVersion: "v1", kind: "Node", name: "stand-in" },
  };
  const path = "/api/v1/namespaces/default/pods/hello/binding";
  await kubectl.must(["create", "--raw", path, "-f", "-"], { stdin: JSON.stringify(binding) });
  const patch = ["--subresource=status", "--type=merge", `--patch=${JSON.stringify(RUNNING)}`];
  await kubectl.must(["patch", "pod", "hello", ...patch]);
}

/** The file that up.sh has written, with the paths and the port that are here. */
function egress(folder: string): string {
  const files = join(folder, "examples/kind/run/kube-apiserver");
  return readFileSync(join(files, "egress-selector-configuration.yaml"), "utf8")
    .replaceAll("/etc/kubernetes/culvert/", `${files}/`)
    .replace(`:${NODE_PORTS.callers}`, `:${PORTS.callers}`);
}

function nodeOfControl(): object {
  const addresses = [{ type: "InternalIP", address: CONTROL_PLANE.ipv4 }];
  return { apiVersion: "v1", kind: "Node", metadata: { name: NODE_OF_CONTROL }, status: { addresses } };
}

function controlPlane({ world }: Stage): Place {
  return {
    namespace: world.network.controlPlane,
    name: NODE_OF_CONTROL,
    ip: CONTROL_PLANE.ipv4,
    hosts: [],
    environment: { KUBERNETES_SERVICE_HOST: "127.0.0.1", KUBERNETES_SERVICE_PORT: String(PORTS.kubeApiserver) },
    rootCaFile: world.pki.kubeApiserver.ca,
  };
}

function node({ world }: Stage): Place {
  const { network, pki } = world;
  return {
    ...{ namespace: network.node, name: "stand-in", ip: NODE.ipv4, hosts: [], environment: {} },
    rootCaFile: pki.kubeApiserver.ca,
  };
}

async function resumesOf({ world }: Stage, server: PodProcess): Promise<number> {
  const url = `http://127.0.0.1:${server.port("health")}/metrics`;
  const { stdout } = await world.network.controlPlane.must(["curl", "-sS", "-m", "5", url]);
  const metrics = new Scrape(stdout);
  const count = (result: string) => metrics.sum("culvert_server_link_resumes_total", { result });
  return count("resumed") + count("moved");
}
