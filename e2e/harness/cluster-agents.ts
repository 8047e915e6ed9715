import { type Agent, startAgent } from "../../agent/agent.ts";
import { agentOptions } from "../../agent/options.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import type { ClusterFiles } from "./cluster-files.ts";
import { within } from "./wait.ts";

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
/** One for all: each logger would listen for the end of the process. */
const log = createLogger({ level, format: "auto", name: "agent" });
const CONNECTED_MS = 30_000;

/** Agents of many clusters in this process. */
export class ClusterAgents implements Disposable {
  readonly all: Agent[] = [];

  /** One more; resolves when it is connected to the server on this port. */
  async start(cluster: ClusterFiles, port: number, agentId: string): Promise<void> {
    const options = {
      ...defaultsOf(agentOptions),
      ...{ agentId, healthServerPort: 0, adminServerPort: 0 },
      ...(await cluster.agentOptions(port)),
    };
    const agent = await startAgent(options, { log: log.child({ cluster: cluster.name, agentId }) });
    this.all.push(agent);
    await within(agent.whenConnected(), CONNECTED_MS, `${agentId} of ${cluster.name} to be connected`);
  }

  [Symbol.dispose](): void {
    for (const agent of this.all) agent.destroy(new Error("the test is over"));
  }
}
