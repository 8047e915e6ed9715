import type { ServerOptions } from "../../server/options.ts";
import { serverOptions } from "../../server/options.ts";
import { type Server, startServer } from "../../server/server.ts";
import { createLogger } from "../../shared/process/logger.ts";
import { defaultsOf } from "../../shared/process/options.ts";
import type { ClusterFolder } from "./cluster-files.ts";
import { flags } from "./pki-files.ts";
import { type ManagedProcess, type ProcessOptions, startCulvert } from "./processes.ts";
import { freePort } from "./targets/absent.ts";

/** A server of the folder's clusters in this process, on free ports. */
export async function startClusterServer(folder: ClusterFolder, more: Partial<ServerOptions> = {}) {
  const { CULVERT_E2E_LOG: level = "silent" } = process.env;
  const options: ServerOptions = {
    ...defaultsOf(serverOptions),
    ...{ serverId: "many", clusters: folder.path, healthPort: 0, adminPort: 0 },
    ...{ serverPort: await freePort(), serverBindAddress: "127.0.0.1" },
    ...{ agentPort: await freePort(), agentBindAddress: "127.0.0.1" },
    ...more,
  };
  const server: Server = await startServer(options, { log: createLogger({ level, format: "auto", name: "server" }) });
  return { server, callerPort: options.serverPort, agentPort: options.agentPort };
}

/** `culvert server --clusters` as a process. */
export interface ClusterServerProcess {
  readonly server: ManagedProcess;
  readonly callerPort: number;
  readonly agentPort: number;
  /** From the start of the process to its first 200 for /readyz. */
  readonly readyMs: number;
}

export async function startClusterProcess(
  folder: ClusterFolder,
  more: Readonly<Record<string, string | number>> = {},
  options: ProcessOptions = {},
): Promise<ClusterServerProcess> {
  const [callerPort, agentPort, healthPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const begun = performance.now();
  const ports = { serverPort: callerPort, agentPort, healthPort, adminPort: 0 };
  const onLoopback = { serverBindAddress: "127.0.0.1", agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
  const server = startCulvert(
    ["server", ...flags({ clusters: folder.path, ...ports, ...onLoopback, ...more })],
    options,
  );
  try {
    await server.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`, 60_000);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return { server, callerPort, agentPort, readyMs: performance.now() - begun };
}
