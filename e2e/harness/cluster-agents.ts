import { type Agent, startAgent } from "../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../agent/context/options.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import type { ClusterFiles } from "./cluster-files.ts";
import { within } from "./wait.ts";

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
/** A single logger for all: each logger would listen for the end of the process. */
const log = createLogger({ level, format: "auto", name: "agent" });
const CONNECTED_MS = 60_000;

/** An agent of a cluster in this process; resolves when it is connected to the server on this port. */
export async function startClusterAgent(
  cluster: ClusterFiles,
  port: number,
  more: Partial<AgentOptions>,
): Promise<Agent> {
  const options = {
    ...defaultsOf(agentOptions),
    ...{ agentId: `agent-of-${cluster.name}`, healthServerPort: 0, adminServerPort: 0 },
    ...(await cluster.agentOptions(port)),
    ...more,
  };
  const { agentId } = options;
  const agent = await startAgent(options, { log: log.child({ cluster: cluster.name, agentId }) });
  try {
    await within(agent.whenConnected(), CONNECTED_MS, `${agentId} of ${cluster.name} to be connected`);
    return agent;
  } catch (error) {
    agent.destroy(new Error("it was not connected in time"));
    throw error;
  }
}

/** Agents of many clusters in this process. */
export class ClusterAgents implements Disposable {
  readonly all: Agent[] = [];

  /** Starts a further agent; resolves when it is connected to the server on this port. */
  async start(cluster: ClusterFiles, port: number, agentId: string): Promise<void> {
    this.all.push(await startClusterAgent(cluster, port, { agentId }));
  }

  [Symbol.dispose](): void {
    for (const agent of this.all) agent.destroy(new Error("the test is over"));
  }
}
