import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { flags } from "../../harness/pki-files.ts";
import { MAIN, RUNTIME } from "../../harness/processes.ts";
import type { Program } from "../../harness/program.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { kubeconfigOf, roleOf, rulesOfThePage, tokenOf } from "../world/accounts.ts";
import { PORTS } from "../world/addresses.ts";
import type { Kubectl } from "../world/kubectl.ts";
import type { Namespace } from "../world/namespace.ts";
import type { World } from "../world/world.ts";

const NAMESPACE = "count";
/** Accounts. */
const LEASES = { name: "leases", namespace: NAMESPACE };
const ENDPOINTS = { name: "endpoints", namespace: NAMESPACE };
const SERVICE = "culvert-server-agents";
const COUNTED_MS = 10_000;
/** Servers start while the check before them ends, and the machine is busy. */
const STARTED_MS = 20_000;
const MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount";

/** How many servers there are, by a real API server and with the rights that the page tells readers to grant alone. */
export const SERVER_COUNT: Check = {
  name: "servers count themselves by Leases and by EndpointSlices",
  deadlineMs: 60_000,
  lanes: ["uds"],
  run: counted,
};

async function counted({ world, kubectl }: Stage): Promise<Seen> {
  await kubectl.must(["create", "namespace", NAMESPACE]);
  await kubectl.create([
    ...[LEASES, ENDPOINTS].map((metadata) => ({ apiVersion: "v1", kind: "ServiceAccount", metadata })),
    ...roleOf(LEASES, rulesOfThePage("--enable-lease-controller")),
    ...roleOf(ENDPOINTS, rulesOfThePage("--server-count-service")),
    slice({ ready: true }, { ready: true }, { ready: true, terminating: true }, { ready: false }),
  ]);
  const kubeconfig = await kubeconfigOf(world, kubectl, LEASES);
  const byLeases = { enableLeaseController: "true", leaseNamespace: NAMESPACE, kubeconfig };
  const controlPlane = world.network.controlPlane;
  await using one = start(controlPlane, world, "one", byLeases);
  await using two = start(controlPlane, world, "two", byLeases);
  await using pod = await startPod(world, kubectl);
  await Promise.all([one.says(2), two.says(2), pod.says(2)]);

  const leases = await kubectl.must([
    "get",
    "leases",
    `--namespace=${NAMESPACE}`,
    "-l",
    "k8s-app=culvert-server",
    "-o",
    "name",
  ]);
  expect(leases.stdout.trim().split("\n").length === 2, "two Leases with the label", leases.stdout);

  await two.program.stop();
  await kubectl.create([slice({ ready: true }, { ready: true }, { ready: true })]);
  await Promise.all([one.says(1), pod.says(3)]);
  return { printed: "2 → 1 servers by Leases, 2 → 3 by EndpointSlices" };
}

/** A server that only counts, and what its status says of it. */
class Counting implements AsyncDisposable {
  readonly program: Program;
  readonly #namespace: Namespace;
  readonly #port: number;

  constructor(namespace: Namespace, program: Program, port: number) {
    this.#namespace = namespace;
    this.program = program;
    this.#port = port;
  }

  async says(servers: number): Promise<void> {
    const known = async () => (await this.#known()) === servers;
    const deadlineMs = STARTED_MS + COUNTED_MS;
    await this.program.waitUntil(known, deadlineMs, `${servers} servers`);
  }

  async #known(): Promise<number | undefined> {
    const { code, stdout } = await this.#namespace.run([
      "curl",
      "-sf",
      "-m",
      "5",
      `http://127.0.0.1:${this.#port}/status`,
    ]);
    return code === 0 ? (JSON.parse(stdout) as { servers?: number }).servers : undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program.stop();
  }
}

const ADMIN_PORTS = { one: 18_095, two: 18_096, pod: 18_097 } as const;
type ServerName = keyof typeof ADMIN_PORTS;

function commandOf(world: World, name: ServerName, options: Readonly<Record<string, string>>): string[] {
  const all = { serverId: name, udsName: world.dir.file(`${name}.sock`), adminPort: ADMIN_PORTS[name], ...options };
  return [RUNTIME, MAIN, "server", ...flags({ ...all, agentPort: 0, healthPort: 0 })];
}

function start(where: Namespace, world: World, name: ServerName, options: Readonly<Record<string, string>>): Counting {
  return new Counting(where, where.start(`server ${name}`, commandOf(world, name, options)), ADMIN_PORTS[name]);
}

/** Kubernetes mounts a pod's token where only a mount namespace of its own can put it here. */
async function startPod(world: World, kubectl: Kubectl): Promise<Counting> {
  const folder = world.dir.file("endpoints-account");
  mkdirSync(folder);
  writeFileSync(join(folder, "token"), await tokenOf(kubectl, ENDPOINTS), { mode: 0o600 });
  copyFileSync(world.pki.kubeApiserver.ca, join(folder, "ca.crt"));
  const mount = `mount -t tmpfs none /var/run && mkdir -p ${MOUNTED} && cp "$1"/* ${MOUNTED} && shift && exec "$@"`;
  const command = commandOf(world, "pod", { serverCountService: `${NAMESPACE}/${SERVICE}` });
  const where = world.network.controlPlane;
  const api = { KUBERNETES_SERVICE_HOST: "127.0.0.1", KUBERNETES_SERVICE_PORT: String(PORTS.kubeApiserver) };
  const inside = ["unshare", "--mount", "--propagation=private", "sh", "-ec", mount, "sh", folder, ...command];
  return new Counting(where, where.start("server pod", inside, api), ADMIN_PORTS.pod);
}

/** As Kubernetes' own controller writes it, which is not there. */
function slice(...conditions: readonly object[]): object {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: `${SERVICE}-x`, namespace: NAMESPACE, labels: { "kubernetes.io/service-name": SERVICE } },
    addressType: "IPv4",
    ports: [{ name: "agents", port: PORTS.agents }],
    endpoints: conditions.map((each, i) => ({ addresses: [`10.91.9.${i + 1}`], conditions: each })),
  };
}
