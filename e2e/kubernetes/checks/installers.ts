import { writeFileSync } from "node:fs";
import { installerArguments } from "../../harness/installer-arguments.ts";
import { agentFiles, serverFiles } from "../../harness/pki-files.ts";
import { MAIN } from "../../harness/processes.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { delegatorOf, kubeconfigOf, tokenOf } from "../world/accounts.ts";
import { CONTROL_PLANE, PORTS } from "../world/addresses.ts";

const READY_MS = 20_000;
const NAMESPACE = "kube-system";
const AUDIENCE = "system:konnectivity-server";
/** It may ask for TokenReviews. */
const SERVER = { name: "konnectivity-server", namespace: NAMESPACE };
/** Ports that the lane's own agents do not have. */
const AGENT_PORTS = { "health-server-port": 8_113, "admin-server-port": 8_114 } as const;

/**
 * What platforms give to konnectivity-server starts culvert, and what they give to their agents leads those there.
 * e2e/interop/installers.test.ts has the platforms whose callers are no kube-apiserver on a unix socket.
 */
export const INSTALLERS: readonly Check[] = [
  logsThrough("KKP", "system-konnectivity-agent"),
  logsThrough("Kamaji", "konnectivity-agent"),
];

function logsThrough(installer: string, account: string): Check {
  return {
    name: `logs through server and stock agent with the arguments of ${installer}`,
    deadlineMs: 60_000,
    lanes: ["grpc-stock"],
    run: (stage) => logs(stage, installer, account),
  };
}

async function logs(stage: Stage, installer: string, account: string): Promise<Seen> {
  const { world, kubectl } = stage;
  await world.culvert.stop();
  using folder = world.folder();
  const agents = { name: account, namespace: NAMESPACE };
  await kubectl.create([
    ...[SERVER, agents].map((metadata) => ({ apiVersion: "v1", kind: "ServiceAccount", metadata })),
    delegatorOf(SERVER),
  ]);
  const kubeconfig = await kubeconfigOf(world, kubectl, SERVER);
  const token = folder.file("token");
  writeFileSync(token, await tokenOf(kubectl, agents, AUDIENCE));

  const { network, culvert, pki, assets } = world;
  const { clusterCert, clusterKey } = serverFiles(pki.culvert);
  const server = installerArguments(`${installer}, server`, {
    ...{ "cluster-cert": clusterCert, "cluster-key": clusterKey, kubeconfig, "uds-name": culvert.udsName },
    ...{ "agent-port": PORTS.agents, "health-port": PORTS.serverHealth },
  });
  const agent = installerArguments(`${installer}, agent`, {
    ...{ "ca-cert": agentFiles(pki.culvert).caCert, "service-account-token-path": token },
    ...{ "proxy-server-host": CONTROL_PLANE.ipv4, "proxy-server-port": PORTS.agents, ...AGENT_PORTS },
  });
  await using serving = network.controlPlane.start("culvert server", [process.execPath, MAIN, "server", ...server]);
  await using connected = network.node.start("konnectivity-agent", [assets.konnectivity.agent, ...agent]);
  await connected.waitUntil(() => serving.log.some((line) => line.includes("tunnel opened")), READY_MS, "a tunnel");
  const { stdout, seconds } = await kubectl.must(["logs", "by-name", "-c", "main"]);
  expect(stdout === "log of main\n", "the log", `${stdout}\n${serving.tail()}`);
  await connected.kill();
  await serving.stop();
  await culvert.startServer();
  culvert.startAgent();
  await culvert.agent.waitForLog(/Connect to server/);
  return { printed: stdout.trim(), seconds };
}
