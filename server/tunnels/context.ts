import type { ListeningAddress } from "../../shared/address/special-addresses.ts";
import type { Target } from "../../shared/address/target.ts";
import { FileDescriptors } from "../../shared/limits/file-descriptors.ts";
import { MemoryPool, type MemoryShare } from "../../shared/limits/memory-pool.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { Tracing } from "../../shared/tracing/tracing.ts";
import type { AuditTrail } from "../audit/audit-trail.ts";
import { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import { ServerCount } from "../replicas/server-count.ts";
import { type ClusterTunnels, Registry } from "./cluster-tunnels.ts";
import { Links } from "./links.ts";
import type { PeerFinder } from "./peer-finder.ts";

/**
 * The parts of a server of which each process has one. Functions and classes take it whole. Parts of a cluster or of a
 * port are arguments of their own.
 */
export interface ServerContext {
  readonly options: ServerOptions;
  readonly log: Logger;
  /** The log of everything that a peer can cause as often as it likes. */
  readonly throttledLog: ThrottledLog;
  readonly metrics: ServerMetrics;
  readonly files: FileDescriptors;
  /** The memory that all clusters share. */
  readonly pool: MemoryPool;
  /**
   * The account of connections whose cluster is not known yet, and of callers until they are admitted. Otherwise
   * unauthenticated peers could use up the memory of a cluster.
   */
  readonly unauthenticatedMemory: MemoryShare;
  /** The clusters of this server, and their tunnels. */
  readonly tunnels: Registry;
  /** The links of agents that this server has issued. */
  readonly links: Links;
  /** Sent to every agent, in its welcome and whenever it changes. */
  readonly servers: ServerCount;
  /** The clusters that are served now. */
  readonly clusters: ServedClusters;
  /** True from SIGTERM on. */
  draining(): boolean;
  /** Whether an agent at `remote` that has dialled this address has reached a TCP port for callers of this server. */
  leadsBack(dialled: string, remote: string): boolean;
  /** The open TCP ports of this server. */
  listeners(): readonly ListeningAddress[];
  /** The audit trail; `undefined` without `--audit-log`. */
  audit(): AuditTrail | undefined;
  /** Undefined without `--otlp-endpoint`. */
  tracing(): Tracing | undefined;
  /** Finds servers that have agents of a cluster which has none here; `undefined` without a directory. */
  peers(): PeerFinder | undefined;
}

interface ServedClusters {
  get(name: string): ServedCluster | undefined;
  /** The other cluster that these callers reach by its name as the target's host. */
  reachedBy(callers: string, target: Target): ServedCluster | undefined;
}

/** A cluster as CONNECTs use it (server/cluster-runtime). */
export interface ServedCluster {
  readonly tunnels: ClusterTunnels;
  /** Pause after this many bytes, ms. */
  readonly pace: (bytes: number) => number;
  /** Throws `forbidden` for a target that the document does not allow. */
  requireTarget(target: Target): void;
  /** Counts one CONNECT; throws `forbidden` or `limited` if it may not be opened now. */
  requireAdmission(target: Target): void;
  /** Counts one destination that an agent asks for; throws as `requireAdmission` does. */
  requireDestination(target: Target): void;
}

/** Facts that the composition of a server has at any moment. */
type LiveFacts = Pick<
  ServerContext,
  "audit" | "clusters" | "draining" | "leadsBack" | "listeners" | "peers" | "tracing"
>;

/** Makes the parts of which each process has one. */
export function createContext(
  options: ServerOptions,
  log: Logger,
  live: LiveFacts,
  metrics = new ServerMetrics(),
): ServerContext {
  const throttledLog = new ThrottledLog(log);
  const pool = new MemoryPool(options.memoryLimit);
  return {
    options,
    log,
    throttledLog,
    metrics,
    files: new FileDescriptors("this server", { metrics, throttledLog }),
    pool,
    unauthenticatedMemory: pool.share(""),
    tunnels: new Registry(pool),
    links: new Links(options.serverId),
    servers: new ServerCount(options.serverCount === 0 ? undefined : options.serverCount),
    ...live,
  };
}
