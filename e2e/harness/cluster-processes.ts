import type { ClusterFiles, ClusterFolder } from "./cluster-files.ts";
import { type Flags, flags } from "./pki-files.ts";
import { type ManagedProcess, type ProcessOptions, startCulvert } from "./processes.ts";
import { started } from "./started.ts";
import { freePort } from "./targets/absent.ts";

/** `culvert server --clusters`, ready. */
export interface ClusterServerProcess {
  readonly server: ManagedProcess;
  readonly callerPort: number;
  readonly agentPort: number;
  readonly healthPort: number;
  /** From the start of the process to the first 200 of /readyz. */
  readonly readyMs: number;
}

/** The flags of a server of this folder's clusters on loopback. */
export function clusterServerFlags(
  clusters: string,
  { callerPort: serverPort, ...ports }: Pick<ClusterServerProcess, "callerPort" | "agentPort" | "healthPort">,
): Flags {
  const bind = { serverBindAddress: "127.0.0.1", agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
  return { clusters, serverPort, agentPort: ports.agentPort, healthPort: ports.healthPort, adminPort: 0, ...bind };
}

/** A thousand clusters on a busy machine take their time. */
const READY_MS = 60_000;

export async function startClusterProcess(
  folder: ClusterFolder,
  more: Flags = {},
  options: ProcessOptions = {},
): Promise<ClusterServerProcess> {
  const [callerPort, agentPort, healthPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const begun = performance.now();
  const own = clusterServerFlags(folder.path, { callerPort, agentPort, healthPort });
  const server = await ready(startCulvert(["server", ...flags({ ...own, ...more })], options), healthPort);
  return { server, callerPort, agentPort, healthPort, readyMs: performance.now() - begun };
}

/** `culvert agent` of a cluster, connected to the server on this port. */
export async function startAgentProcess(
  cluster: ClusterFiles,
  port: number,
  options: ProcessOptions = {},
): Promise<ManagedProcess> {
  const healthPort = await freePort();
  const health = { healthServerHost: "127.0.0.1", healthServerPort: healthPort, adminServerPort: 0 };
  const args = flags({ ...health, ...(await cluster.agentOptions(port)) });
  return await ready(startCulvert(["agent", ...args], options), healthPort);
}

function ready(process: ManagedProcess, healthPort: number): Promise<ManagedProcess> {
  return started(process, () => process.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`, READY_MS));
}
