import { createSecureContext, type SecureContext } from "node:tls";
import { LightAgent } from "../../harness/light-agent.ts";
import { serve } from "../child.ts";

/** A process of light agents of many clusters. */
const agents: LightAgent[] = [];
let attempts = 0;
let failed = 0;

export interface ClusterOfCrowd {
  readonly servername: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

interface GatherParams {
  readonly port: number;
  readonly clusters: readonly ClusterOfCrowd[];
  /** Agents of each cluster. */
  readonly each: number;
}

/** Connects them all, a few at a time. */
async function gather({ port, clusters, each }: GatherParams): Promise<object> {
  let next = 0;
  const lane = async () => {
    while (next < clusters.length * each) {
      const index = next++;
      const { servername, ...tls } = clusters[Math.floor(index / each)] as ClusterOfCrowd;
      await join(port, servername, `light-${index % each}`, createSecureContext(tls));
    }
  };
  await Promise.all(Array.from({ length: 16 }, lane));
  return {};
}

function join(port: number, servername: string, agentId: string, secureContext: SecureContext) {
  return new Promise<void>((resolve) => {
    const agent = new LightAgent({
      ...{ port, servername, agentId, secureContext },
      onDial: () => attempts++,
      onConnected: () => resolve(),
      onFailed: () => failed++,
    });
    agents.push(agent);
    agent.dial();
  });
}

/** Counts since the last call. */
function state(_: object): { readonly connected: number; readonly attempts: number; readonly failed: number } {
  const now = { connected: agents.filter(({ connected }) => connected).length, attempts, failed };
  attempts = failed = 0;
  return now;
}

const methods = { gather, state };
export type FleetCrowdMethods = typeof methods;
serve(methods);
