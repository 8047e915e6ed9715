import { defaultsOf } from "../../../shared/config/options.ts";
import { FileDescriptors } from "../../../shared/limits/file-descriptors.ts";
import { MemoryPool } from "../../../shared/limits/memory-pool.ts";
import { createLogger } from "../../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../../shared/runtime/throttled-log.ts";
import { ServerMetrics } from "../../metrics/server-metrics.ts";
import { type ServerOptions, serverOptions } from "../../options/options.ts";
import { ServerCount } from "../../replicas/server-count.ts";
import { Registry } from "../cluster-tunnels.ts";
import type { ServerContext } from "../context.ts";
import { Links } from "../links.ts";

/** The context of a server without clusters, a log and other servers, apart from what the test says. */
export function contextOf(
  options: Partial<ServerOptions> = {},
  parts: Partial<Omit<ServerContext, "options">> = {},
): ServerContext {
  const { log = createLogger({ level: "silent", format: "json", name: "test" }) } = parts;
  const { pool = new MemoryPool(Number.POSITIVE_INFINITY) } = parts;
  const throttledLog = new ThrottledLog(log);
  const metrics = new ServerMetrics({ processMetrics: false });
  return {
    options: { ...defaultsOf(serverOptions), serverId: "srv", proxyStrategies: ["default"], ...options },
    log,
    throttledLog,
    metrics,
    files: new FileDescriptors("this server", { metrics, throttledLog }),
    pool,
    unauthenticatedMemory: pool.share(""),
    tunnels: new Registry(pool),
    links: new Links("srv"),
    servers: new ServerCount(),
    clusters: { get: () => undefined, reachedBy: () => undefined },
    draining: () => false,
    leadsBack: () => false,
    peers: () => undefined,
    ...parts,
  };
}

/** The same with one cluster, which is served under every name, without rules and limits. */
export function contextWithCluster(
  options: Partial<ServerOptions> = {},
  parts: Partial<Omit<ServerContext, "options" | "clusters">> = {},
) {
  const served = { requireTarget: () => {}, requireAdmission: () => {}, pace: () => 0 };
  const clusters = { get: () => ({ ...served, tunnels: cluster }), reachedBy: () => undefined };
  const context = contextOf(options, { ...parts, clusters });
  const cluster = context.tunnels.add("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  return { context, cluster };
}
