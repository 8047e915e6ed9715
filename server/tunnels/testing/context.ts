import { defaultsOf } from "../../../shared/config/options.ts";
import { createLogger } from "../../../shared/runtime/logger.ts";
import { ServerMetrics } from "../../metrics/server-metrics.ts";
import { type ServerOptions, serverOptions } from "../../options/options.ts";
import { createContext, type ServerContext } from "../context.ts";

/** The context of a server without clusters, a log and other servers, apart from what the test says. */
export function contextOf(
  options: Partial<ServerOptions> = {},
  parts: Partial<Omit<ServerContext, "options">> = {},
): ServerContext {
  const { log = createLogger({ level: "silent", format: "json", name: "test" }) } = parts;
  const all: ServerOptions = {
    ...defaultsOf(serverOptions),
    serverId: "srv",
    proxyStrategies: ["default"],
    memoryLimit: Number.POSITIVE_INFINITY,
    ...options,
  };
  const live = {
    clusters: { get: () => undefined, reachedBy: () => undefined },
    draining: () => false,
    leadsBack: () => false,
    listeners: () => [],
    audit: () => undefined,
    tracing: () => undefined,
    peers: () => undefined,
  };
  return { ...createContext(all, log, live, new ServerMetrics({ processMetrics: false })), ...parts };
}

/** The same with one cluster, which is served under every name, without rules and limits. */
export function contextWithCluster(
  options: Partial<ServerOptions> = {},
  parts: Partial<Omit<ServerContext, "options" | "clusters">> = {},
) {
  const admitted = { requireTarget: () => {}, requireAdmission: () => {}, requireDestination: () => {} };
  const served = { ...admitted, pace: () => 0 };
  const clusters = { get: () => ({ ...served, tunnels: cluster }), reachedBy: () => undefined };
  const context = contextOf(options, { ...parts, clusters });
  const cluster = context.tunnels.add("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  return { context, cluster };
}
