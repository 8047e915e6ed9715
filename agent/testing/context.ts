import { pino } from "pino";
import { defaultsOf } from "../../shared/config/options.ts";
import { FileDescriptors } from "../../shared/limits/file-descriptors.ts";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { AgentContext } from "../context/context.ts";
import { AgentMetrics } from "../context/metrics.ts";
import { type AgentOptions, agentOptions } from "../context/options.ts";
import { resolver } from "./name-resolver.ts";

/** An agent's options: the defaults, and what the test changes. */
export function optionsOf(change: Partial<AgentOptions> = {}): AgentOptions {
  return { ...defaultsOf(agentOptions), agentId: "a1", ...change };
}

/** An agent's context, silent and without bounds but for what the test changes. */
export function contextOf(change: Partial<AgentContext> = {}): AgentContext {
  const { log = pino({ level: "silent" }) } = change;
  const metrics = new AgentMetrics({ processMetrics: false });
  const throttledLog = new ThrottledLog(log);
  return {
    options: optionsOf(),
    log,
    throttledLog,
    metrics,
    memory: UNBOUNDED,
    files: new FileDescriptors("the agent", { metrics, throttledLog }),
    resolver: resolver(),
    retry: { baseMs: 100, capMs: 10_000, random: () => 1 },
    tracing: () => undefined,
    onStream: (stream) => {
      stream.on("error", () => {});
      stream.accept();
    },
    ...change,
  };
}
