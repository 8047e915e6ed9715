import { writeFileSync } from "node:fs";
import { installerArguments } from "../../harness/installer-arguments.ts";
import { agentFiles, serverFiles } from "../../harness/pki-files.ts";
import { MAIN, RUNTIME } from "../../harness/processes.ts";
import type { TempDir } from "../../harness/temp.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { delegatorOf, kubeconfigOf, tokenOf } from "../world/accounts.ts";
import { CONTROL_PLANE, PORTS } from "../world/addresses.ts";
import { callerPair } from "../world/egress.ts";
import type { Kubectl } from "../world/kubectl.ts";
import { type CulvertLane, tunnelOf } from "../world/lanes.ts";
import type { Namespace } from "../world/namespace.ts";
import type { World } from "../world/world.ts";
import { CONNECTED } from "./failures.ts";

const READY_MS = 20_000;
const NAMESPACE = "kube-system";
const AUDIENCE = "system:konnectivity-server";
/** It may ask for TokenReviews. */
const SERVER = { name: "konnectivity-server", namespace: NAMESPACE };
/** Ports that the lane's own agents do not have. */
const AGENT_PORTS = { "health-server-port": 8_113, "admin-server-port": 8_114 } as const;
/** Of a server beside the lane's own. */
const HUB = { callers: 8_190, agents: 8_191, health: 8_192, admin: 8_195, forwarded: 8_199 } as const;

/** The processes of an installer, and the lane whose kube-apiserver comes as its own does. */
interface Installer {
  readonly name: string;
  /** Which of its agents, if there are several. */
  readonly agent?: string;
  /** Of the service account that its agents have; left out, they come with a certificate. */
  readonly account?: string;
  readonly lane: CulvertLane;
}

/** The arguments that platforms give to konnectivity-server start culvert, and their agents' arguments reach it. */
export const INSTALLERS: readonly Check[] = [
  logsThrough({ name: "KKP", account: "system-konnectivity-agent", lane: "grpc-stock" }),
  logsThrough({ name: "Kamaji", account: "konnectivity-agent", lane: "grpc-stock" }),
  logsThrough({ name: "k0s", account: "konnectivity-agent", lane: "grpc-stock" }),
  logsThrough({ name: "HyperShift", agent: "agent on the nodes", lane: "tcp" }),
  check("OCM", "grpc-stock", logsFromHub),
];

function logsThrough(installer: Installer): Check {
  return check(installer.name, installer.lane, (stage) => logs(stage, installer));
}

function check(installer: string, lane: CulvertLane, run: Check["run"]): Check {
  const name = `logs through server and stock agent with the arguments of ${installer}`;
  return { name, deadlineMs: 60_000, lanes: [lane], run };
}

/** kube-apiserver's egress leads to the installer's server, in place of the lane's own. */
async function logs(stage: Stage, installer: Installer): Promise<Seen> {
  const { world, lane, kubectl } = stage;
  const { network, culvert } = world;
  await culvert.stop();
  using folder = world.folder();
  const { clusterCert, clusterKey, ...files } = serverFiles(world.pki.culvert);
  const { serverCert, serverKey, serverCaCert, clusterCaCert } = files;
  const seen = await withStarted(
    world,
    {
      server: installerArguments(`${installer.name}, server`, {
        ...{ "cluster-cert": clusterCert, "cluster-key": clusterKey, "cluster-ca-cert": clusterCaCert },
        ...{ "server-cert": serverCert, "server-key": serverKey, "server-ca-cert": serverCaCert },
        ...(installer.account && { kubeconfig: await accountsOf(world, kubectl, installer.account) }),
        "uds-name": culvert.udsName,
        ...{ "agent-port": PORTS.agents, "health-port": PORTS.serverHealth },
      }),
      agent: installerArguments(`${installer.name}, ${installer.agent ?? "agent"}`, {
        ...agentCertificate(world),
        ...(installer.account && { "service-account-token-path": await tokenFile(kubectl, installer.account, folder) }),
        ...{ "proxy-server-host": CONTROL_PLANE.ipv4, "proxy-server-port": PORTS.agents, ...AGENT_PORTS },
      }),
      agentIn: network.node,
    },
    async () => await logOfMain(kubectl),
  );
  await culvert.startServer();
  culvert.startAgent();
  for (const kind of tunnelOf(lane).agents) await culvert.agentOf(kind).waitForLog(CONNECTED[kind]);
  return seen;
}

/**
 * OCM's hub has a server, and each cluster an agent beside its kube-apiserver. kubectl goes from the hub over gRPC with
 * mutual TLS to the kube-apiserver, and that one to its node along the lane, as ever.
 */
async function logsFromHub({ world, kubectl }: Stage): Promise<Seen> {
  const { network, pki, assets } = world;
  const { clusterCert, clusterKey, clusterCaCert, serverCert, serverKey, serverCaCert } = serverFiles(pki.culvert);
  const args = {
    server: installerArguments("OCM, server", {
      ...{ "cluster-cert": clusterCert, "cluster-key": clusterKey, "cluster-ca-cert": clusterCaCert },
      ...{ "server-cert": serverCert, "server-key": serverKey, "server-ca-cert": serverCaCert },
      ...{ "server-port": HUB.callers, "agent-port": HUB.agents, "health-port": HUB.health, "admin-port": HUB.admin },
    }),
    agent: installerArguments("OCM, agent of blue", {
      ...agentCertificate(world),
      ...{ "agent-identifiers": "host=localhost" },
      ...{ "proxy-server-host": CONTROL_PLANE.ipv4, "proxy-server-port": HUB.agents, ...AGENT_PORTS },
    }),
    agentIn: network.controlPlane,
  };
  return await withStarted(world, args, async () => {
    const { ca, cert, key } = callerPair(pki.culvert);
    const forwarder = network.controlPlane.start("egress-dialer", [
      ...[assets.egressDialer, "--grpc-over-tls", `127.0.0.1:${HUB.callers}`, "--ca", ca, "--cert", cert, "--key", key],
      ...["--listen", `127.0.0.1:${HUB.forwarded}`, "--target", `localhost:${PORTS.kubeApiserver}`],
    ]);
    await using forwarding = forwarder;
    await forwarding.waitForLog(/forwarding/);
    return await logOfMain(kubectl, `--server=https://127.0.0.1:${HUB.forwarded}`);
  });
}

interface Started {
  readonly server: readonly string[];
  readonly agent: readonly string[];
  readonly agentIn: Namespace;
}

/** Runs something while culvert's server and a stock agent run with these arguments. */
async function withStarted(
  { network, assets }: World,
  { server, agent, agentIn }: Started,
  use: () => Promise<Seen>,
): Promise<Seen> {
  await using serving = network.controlPlane.start("culvert server", [RUNTIME, MAIN, "server", ...server]);
  await using connected = agentIn.start("konnectivity-agent", [assets.konnectivity.agent, ...agent]);
  try {
    await connected.waitUntil(() => serving.log.some((line) => line.includes("tunnel opened")), READY_MS, "a tunnel");
    return await use();
  } catch (error) {
    throw new Error(`${(error as Error).message}\n${serving.tail()}`, { cause: error });
  } finally {
    await connected.kill();
  }
}

async function logOfMain(kubectl: Kubectl, ...options: readonly string[]): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["logs", "by-name", "-c", "main", ...options]);
  expect(stdout === "log of main\n", "the log", stdout);
  return { printed: stdout.trim(), seconds };
}

/** The service accounts of server and agents; the path of the server's kubeconfig. */
async function accountsOf(world: World, kubectl: Kubectl, account: string): Promise<string> {
  const agents = { name: account, namespace: NAMESPACE };
  await kubectl.create([
    ...[SERVER, agents].map((metadata) => ({ apiVersion: "v1", kind: "ServiceAccount", metadata })),
    delegatorOf(SERVER),
  ]);
  return await kubeconfigOf(world, kubectl, SERVER);
}

async function tokenFile(kubectl: Kubectl, account: string, folder: TempDir): Promise<string> {
  const path = folder.file("token");
  writeFileSync(path, await tokenOf(kubectl, { name: account, namespace: NAMESPACE }, AUDIENCE));
  return path;
}

function agentCertificate({ pki }: World): Record<string, string> {
  const { caCert, agentCert, agentKey } = agentFiles(pki.culvert);
  return { "ca-cert": caCert, "agent-cert": agentCert, "agent-key": agentKey };
}
