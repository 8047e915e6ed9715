import { existsSync, readdirSync } from "node:fs";
import { constants, setPriority } from "node:os";
import { createSecureContext } from "node:tls";
import { LightAgent } from "../../harness/light-agent.ts";
import { serve } from "../child.ts";

const THREADS = "/proc/self/task";

/** A process of thousands of light agents. */
const agents: LightAgent[] = [];
let attempts = 0;
let sentAway = 0;
let failed = 0;
let lost = 0;

interface GatherParams {
  readonly port: number;
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string };
  readonly count: number;
}

/** Connects this number of agents, a few at a time. */
async function gather({ port, tls, count }: GatherParams): Promise<object> {
  const secureContext = createSecureContext(tls);
  const join = () =>
    new Promise<void>((resolve) => {
      const agent = new LightAgent({
        port,
        secureContext,
        agentId: `light-${agents.length + 1}`,
        onDial: () => attempts++,
        onConnected: () => resolve(),
        onLost: () => lost++,
        onFailed: (_, retryAfterS) => {
          if (retryAfterS === undefined) failed++;
          else sentAway++;
        },
      });
      agents.push(agent);
      agent.dial();
    });
  const lane = async () => {
    while (agents.length < count) await join();
  };
  await Promise.all(Array.from({ length: 32 }, lane));
  return {};
}

/** Cuts all of them in one turn; they come back by themselves. */
function cut(_: object): object {
  for (const agent of agents) agent.cut();
  attempts = sentAway = failed = lost = 0;
  return {};
}

function state(_: object): CrowdState {
  const connected = agents.filter((agent) => agent.connected).length;
  return { connected, attempts, sentAway, failed, lost };
}

/** Counted since the last cut. */
interface CrowdState {
  /** At this moment. */
  readonly connected: number;
  readonly attempts: number;
  /** Attempts that were told when to come back … */
  readonly sentAway: number;
  /** … and those that came to nothing otherwise. */
  readonly failed: number;
  /** Connections that ended after their welcome, the cut ones among them. */
  readonly lost: number;
}

const methods = { gather, cut, state };

export type CrowdMethods = typeof methods;
// The machines of thousands of agents are not the server's: what this process wants of the processor it must not take
// from those that are measured. On Linux each thread has a priority of its own, and later ones get that of the first.
const threads = existsSync(THREADS) ? readdirSync(THREADS).map(Number) : [process.pid];
for (const thread of threads) {
  try {
    setPriority(thread, constants.priority.PRIORITY_LOW);
  } catch {
    // It has ended meanwhile.
  }
}
serve(methods);
