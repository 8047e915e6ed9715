import { type ServerOptions, serverOptions } from "../../server/options/options.ts";
import { type Server, startServer } from "../../server/server.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger, type Logger } from "../../shared/runtime/logger.ts";
import type { ClusterFolder } from "./cluster-files.ts";
import { freePort } from "./targets/absent.ts";

/** A server of a folder's clusters in this process. */
export interface ClusterServer extends Disposable {
  readonly server: Server;
  readonly callerPort: number;
  readonly agentPort: number;
}

export async function startClusterServer(
  folder: ClusterFolder,
  more: Partial<ServerOptions> = {},
  log = ownLog(),
): Promise<ClusterServer> {
  const options: ServerOptions = {
    ...defaultsOf(serverOptions),
    ...{ serverId: "many", clusters: folder.path, healthPort: 0, adminPort: 0 },
    ...{ serverPort: await freePort(), serverBindAddress: "127.0.0.1" },
    ...{ agentPort: await freePort(), agentBindAddress: "127.0.0.1" },
    ...more,
  };
  const server = await startServer(options, { log });
  return {
    server,
    callerPort: options.serverPort,
    agentPort: options.agentPort,
    [Symbol.dispose]: () => server.destroy(new Error("the test is over")),
  };
}

function ownLog(): Logger {
  const { CULVERT_E2E_LOG: level = "silent" } = process.env;
  return createLogger({ level, format: "auto", name: "server" });
}
