import type { Target } from "../../shared/address/target.ts";
import { ConfigError } from "../../shared/config/options.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { ConditionLog } from "../../shared/runtime/throttled-log.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import { type Cluster, type ClusterChanges, changedKeys, type SideName } from "../clusters/cluster.ts";
import type { ClusterListener } from "../clusters/store.ts";
import type { ApiServerState } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { ClusterRuntime } from "./cluster-runtime.ts";
import type { ClusterSetup, ClusterVirtualHost } from "./virtual-host.ts";
import { documentCrlWarnings, flagCrlWarnings, sharedCaWarning, WARNINGS, warningsOf } from "./warnings.ts";

interface ClusterFinder {
  find(serverName: string | undefined): Cluster | undefined;
}

/** Where clusters come from: the documents of `--clusters`, or the flags. */
export interface ClusterSource {
  readonly clusters: ReadonlyMap<string, Cluster>;
  /** SNI → cluster on the port of each side. */
  readonly names: Readonly<Record<SideName, ClusterFinder>>;
  listen(listener: ClusterListener): void;
}

/** Told of the changes of the clusters that are served. */
interface ClustersWatcher {
  /** Whether this CRL of `--client-crl-file` is of a CA that is not a cluster's. */
  knowsCrl(list: RevocationList): boolean;
  /** The cluster is served from now on. */
  onAdded(runtime: ClusterRuntime): void;
  onChanged(runtime: ClusterRuntime, what: ClusterChanges): void;
  /** New clients do not find the cluster any more; what it has open is to be drained. */
  onRemoved(runtime: ClusterRuntime): void;
}

/** A cluster and the state of the API server that verifies its tokens. */
export interface TokenReviewState {
  readonly cluster: string;
  readonly reach: ApiServerState;
}

/** The clusters that are served now, and their virtual hosts on the TLS ports. */
export class Clusters implements ClusterListener {
  readonly agentHosts: VirtualHosts<ClusterVirtualHost>;
  /** For connections whose TLS ended at a load balancer, and whose name comes in the request. */
  readonly plainAgentHosts: VirtualHosts<ClusterVirtualHost>;
  readonly callerHosts: VirtualHosts<ClusterVirtualHost>;
  readonly #source: ClusterSource;
  readonly #setup: ClusterSetup;
  readonly #watcher: ClustersWatcher;
  readonly #context: ServerContext;
  readonly #served = new Map<string, ClusterRuntime>();
  /** Clusters that cannot be served, and why. */
  readonly #unserved = new Map<string, string>();
  readonly #crlLog: ConditionLog;
  #started = false;

  constructor(source: ClusterSource, setup: ClusterSetup, watcher: ClustersWatcher, context: ServerContext) {
    this.#source = source;
    this.#setup = setup;
    this.#watcher = watcher;
    this.#context = context;
    this.agentHosts = this.#hosts("agents", hasCertificate);
    this.plainAgentHosts = this.#hosts("agents", worksOnPlainPort);
    this.#crlLog = new ConditionLog(context.log, () =>
      this.#crlWarnings().map((message) => ({ level: "warn", fields: {}, message })),
    );
    this.callerHosts = this.#hosts("callers", hasCertificate);
  }

  /** Throws a `ConfigError` for a cluster that cannot be served. */
  start(): void {
    this.#source.listen(this);
    this.#started = true;
    if (this.#served.size === 0) this.#context.log.warn("there are no clusters yet: every caller and agent is refused");
    for (const warn of WARNINGS) {
      for (const warning of warningsOf(this.#served.values(), warn)) this.#context.log.warn(warning);
    }
    this.#crlLog.check();
  }

  get(name: string): ClusterRuntime | undefined {
    return this.#served.get(name);
  }

  /** The cluster that callers of another one reach by its name as the target's host, where its document lets them. */
  reachedBy(callers: string, { host }: Target): ClusterRuntime | undefined {
    const found = this.#served.get(host.toLowerCase().replace(/\.$/, ""));
    return found?.cluster.callers.fromClusters?.includes(callers) === true ? found : undefined;
  }

  all(): Iterable<ClusterRuntime> {
    return this.#served.values();
  }

  /** Why some clusters cannot be served. */
  unserved(): Iterable<string> {
    return this.#unserved.values();
  }

  /** Warnings that readyz shows until their cause is removed. */
  warnings(): string[] {
    return [...warningsOf(this.#served.values(), sharedCaWarning), ...this.#crlWarnings()];
  }

  /** The clusters whose tokens an API server verifies. */
  tokenReviews(): TokenReviewState[] {
    return [...this.#served].flatMap(([cluster, { apiServerState }]) =>
      apiServerState === undefined ? [] : { cluster, reach: apiServerState },
    );
  }

  /** The certificates and CAs of the documents that expire. */
  *expiring(): Generator<Expiring> {
    for (const runtime of this.#served.values()) yield* runtime.expiring();
  }

  /** Call it when the CRLs of the flags have changed. */
  readonly checkCrls = (): void => this.#crlLog.checkSoon();

  #crlWarnings(): string[] {
    const { crl } = this.#setup.flags;
    const isOfOthers = (list: RevocationList) => this.#watcher.knowsCrl(list);
    return [
      ...(crl === undefined ? [] : flagCrlWarnings(crl, this.#served.values(), isOfOthers)),
      ...[...this.#served.values()].flatMap((runtime) => documentCrlWarnings(runtime)),
    ].slice(0, MAX_CRL_WARNINGS);
  }

  onAdded(cluster: Cluster): void {
    const { tunnels: registry, options } = this.#context;
    const { serverId, drainTimeoutMs } = options;
    const maxAgents = cluster.agents.maxAgents ?? options.maxAgents;
    const tunnels = registry.add(cluster.name, { serverId, maxAgents, drainTimeoutMs });
    const runtime = this.#make(cluster, tunnels);
    if (runtime === undefined) {
      registry.remove(tunnels);
      return;
    }
    this.#unserved.delete(cluster.name);
    this.#served.set(cluster.name, runtime);
    if (this.#started) {
      const { name, file, suspended } = cluster;
      this.#context.log.info({ cluster: name, file, ...(suspended && { suspended }) }, "cluster added");
      this.#warnOf(runtime, []);
      this.#crlLog.checkSoon();
    }
    this.#watcher.onAdded(runtime);
  }

  /** Suspending and resuming are warnings, unlike other changes. */
  #logChange({ name, file, suspended }: Cluster, what: ClusterChanges): void {
    const line = { cluster: name, file, changed: changedKeys(what) };
    if (what.suspended) this.#context.log.warn(line, suspended ? "cluster suspended" : "cluster resumed");
    else this.#context.log.info(line, "cluster changed");
  }

  #warnOf(runtime: ClusterRuntime, before: readonly string[]): void {
    for (const warning of warningsAbout(runtime)) {
      if (!before.includes(warning)) this.#context.log.warn({ cluster: runtime.cluster.name }, warning);
    }
  }

  /** A cluster that cannot be served fails the start; later it only keeps itself out. */
  #make(cluster: Cluster, tunnels: ClusterTunnels): ClusterRuntime | undefined {
    const { name, file } = cluster;
    try {
      return new ClusterRuntime(cluster, tunnels, this.#setup, this.#context);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (!this.#started) throw new ConfigError([`Cluster "${name}" (${file}): ${reason}.`], { cause: error });
      this.#unserved.set(name, `${file}: cluster "${name}" cannot be served: ${reason}`);
      this.#context.log.error({ cluster: name, file, reason }, "a cluster cannot be served");
      return undefined;
    }
  }

  onChanged(cluster: Cluster, what: ClusterChanges): void {
    const runtime = this.#served.get(cluster.name);
    if (runtime === undefined) {
      this.onAdded(cluster); // its last version could not be served
      return;
    }
    if (what.maxAgents) runtime.tunnels.maxAgents = cluster.agents.maxAgents ?? this.#context.options.maxAgents;
    const before = warningsAbout(runtime);
    runtime.update(cluster, what);
    this.#logChange(cluster, what);
    this.#warnOf(runtime, before);
    this.#crlLog.checkSoon();
    this.#watcher.onChanged(runtime, what);
  }

  onRemoved({ name }: Cluster): void {
    this.#unserved.delete(name);
    const runtime = this.#served.get(name);
    if (runtime === undefined) return;
    this.#served.delete(name);
    this.#context.tunnels.remove(runtime.tunnels);
    runtime.close();
    this.#watcher.onRemoved(runtime);
  }

  close(): void {
    this.#crlLog.close();
    for (const runtime of this.#served.values()) runtime.close();
  }

  #hosts(side: SideName, isUsable: (host: ClusterVirtualHost) => boolean): VirtualHosts<ClusterVirtualHost> {
    const source = this.#source;
    const all = this.#served;
    return {
      get single() {
        if (all.size !== 1) return undefined;
        const [only] = all.values();
        const host = only?.[side];
        return host?.side.sni.length === 0 && isUsable(host) ? host : undefined;
      },
      find: (serverName) => {
        const cluster = source.names[side].find(serverName);
        const host = cluster && all.get(cluster.name)?.[side];
        return host !== undefined && isUsable(host) ? host : undefined;
      },
    };
  }
}

/** Maximum number of warnings about CRLs, because a thousand clusters may name one file. */
const MAX_CRL_WARNINGS = 10;

function warningsAbout(runtime: ClusterRuntime): string[] {
  return WARNINGS.flatMap((warn) => warn(runtime) ?? []);
}

function hasCertificate({ material }: ClusterVirtualHost): boolean {
  return material !== undefined;
}

/** Inner TLS shows the certificate too; only tokens need none. */
function worksOnPlainPort(host: ClusterVirtualHost): boolean {
  return hasCertificate(host) || host.innerTls === "never";
}
