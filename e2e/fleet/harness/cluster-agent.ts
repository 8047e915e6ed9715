import { type Agent, startAgent } from "../../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../../agent/options.ts";
import { defaultsOf } from "../../../shared/config/options.ts";
import { createLogger } from "../../../shared/runtime/logger.ts";
import type { ClusterFiles } from "../../harness/cluster-files.ts";
import { within } from "../../harness/wait.ts";

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
/** One for all: each logger would listen for the end of the process. */
const log = createLogger({ level, format: "auto", name: "agent" });
const CONNECTED_MS = 60_000;

/** An agent of a cluster in this process; resolves when it is connected by this port. */
export async function startClusterAgent(
  cluster: ClusterFiles,
  port: number,
  more: Partial<AgentOptions>,
): Promise<Agent> {
  const options = {
    ...defaultsOf(agentOptions),
    ...(await cluster.agentOptions(port)),
    ...{ agentId: `agent-of-${cluster.name}`, healthServerPort: 0, adminServerPort: 0 },
    syncIntervalCapMs: 2_000, // a server that is back is found within it
    ...more,
  };
  const agent = await startAgent(options, { log: log.child({ cluster: cluster.name }) });
  await within(agent.whenConnected(), CONNECTED_MS, `the agent of ${cluster.name} to be connected`);
  return agent;
}
