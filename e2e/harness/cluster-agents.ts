import { type Agent, startAgent } from "../../agent/agent.ts";
import { agentOptions } from "../../agent/options.ts";
import { createLogger } from "../../shared/process/logger.ts";
import { defaultsOf } from "../../shared/process/options.ts";
import type { ClusterFiles } from "./cluster-files.ts";

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
/** One for all: each logger would listen for the end of the process. */
const log = createLogger({ level, format: "auto", name: "agent" });

/** An agent of a cluster in this process, under way to the server on this port. */
export async function startClusterAgent(cluster: ClusterFiles, port: number, agentId: string): Promise<Agent> {
  const options = {
    ...defaultsOf(agentOptions),
    ...{ agentId, healthServerPort: 0, adminServerPort: 0 },
    ...(await cluster.agentOptions(port)),
  };
  return await startAgent(options, { log: log.child({ cluster: cluster.name, agentId }) });
}
