import { TurnQueue } from "../shared/basics/timers.ts";
import { CulvertError } from "../shared/outcomes.ts";
import type { RevocationList } from "../shared/tls/revocation-list.ts";
import type { CallerListeners } from "./callers/caller-listeners.ts";
import { CallerReverification } from "./callers/verify-again.ts";
import type { ClusterRuntime } from "./cluster-runtime/cluster-runtime.ts";
import { type ClusterSource, Clusters } from "./cluster-runtime/clusters.ts";
import { FlagTls } from "./cluster-runtime/flag-certificates.ts";
import { flagCluster } from "./cluster-runtime/flag-cluster.ts";
import type { Cluster, ClusterChanges } from "./clusters/cluster.ts";
import type { ClusterStore } from "./clusters/store.ts";
import type { OtherServers } from "./other-servers.ts";
import type { ServerContext } from "./tunnels/context.ts";

/** The parts of a server whose connections a change of the clusters may end. */
interface ServerPorts {
  readonly callers: CallerListeners;
  /** Links to other servers: CRLs of `--client-crl-file` count for them, too. */
  readonly others: OtherServers;
  onUnixOpened(path: string): void;
}

/** How long callers may take to receive the end of connections whose tunnel was closed at the end of a drain, ms. */
export const RESET_MS = 100;

const NO_CRLS: readonly RevocationList[] = [];

/**
 * The clusters that this server serves, and what their updates, and those of the flags' certificates, change at once.
 */
export class ClusterUpdates {
  readonly #ports: ServerPorts;
  readonly #context: ServerContext;
  /** Credentials of all clusters are verified again in turns. */
  readonly #turns = new TurnQueue();
  readonly #callerReverification = new CallerReverification(this.#turns);
  #store: ClusterStore | undefined;
  #flags: FlagTls | undefined;
  #clusters: Clusters | undefined;
  #started = false;

  constructor(ports: ServerPorts, context: ServerContext) {
    this.#ports = ports;
    this.#context = context;
  }

  /** The documents of `--clusters`; `undefined`: the flags describe the one cluster. */
  get store(): ClusterStore | undefined {
    return this.#store;
  }

  get flags(): FlagTls | undefined {
    return this.#flags;
  }

  /** The CRLs of `--client-crl-file`; another array whenever they change. */
  get crls(): readonly RevocationList[] {
    return this.#flags?.crl?.content.lists ?? NO_CRLS;
  }

  /** `undefined` before `start`. */
  get clusters(): Clusters | undefined {
    return this.#clusters;
  }

  /** Reads documents and certificates, and opens the unix sockets. Rejects with a `ConfigError`. */
  async start(): Promise<Clusters> {
    const { options, log } = this.#context;
    const flags = this.#openFlags();
    this.#flags = flags;
    if (options.clusters !== "") {
      const { ClusterStore } = await import("./clusters/store.ts");
      this.#store = await ClusterStore.open(options.clusters, log, { flags: () => flags.authorities });
    }
    const source: ClusterSource = this.#store ?? flagCluster(options);
    // A document may get rules for tokens at any time, the cluster of the flags has them from the start or never.
    const mayHaveTokens = this.#store !== undefined || [...source.clusters.values()].some(hasTokens);
    const { createVerifier } = mayHaveTokens ? await import("./tokens/create-verifier.ts") : {};
    const setup = { flags, isOfFlags: this.#store === undefined, createVerifier };
    const clusters = new Clusters(source, setup, this, this.#context);
    this.#clusters = clusters;
    clusters.start();
    for (const cluster of clusters.all()) await this.#openUnix(cluster);
    this.#started = true;
    return clusters;
  }

  #openFlags(): FlagTls {
    const all = () => this.#clusters?.all() ?? [];
    return new FlagTls(this.#context, {
      onAgentsRenewed: (caChanged) => {
        for (const cluster of all()) {
          if (caChanged && cluster.cluster.agents.ca === undefined) cluster.reverifyAgents();
          else cluster.rotateAgents("the server's certificates have changed");
        }
        if (caChanged) void this.#store?.resolveAgain();
      },
      onCrlChanged: () => {
        this.#clusters?.checkCrls();
        this.#ports.others.peers?.onCrlChanged();
        for (const cluster of all()) {
          const { agents, callers } = cluster.cluster;
          if (agents.crl === undefined) cluster.endRevokedAgents(this.#turns);
          if (callers.crl === undefined) void this.#callerReverification.verify(cluster.callers);
        }
      },
      onCallersCaChanged: () => {
        for (const { cluster, callers } of all()) {
          if (cluster.callers.ca === undefined) void this.#callerReverification.verify(callers);
        }
        void this.#store?.resolveAgain();
      },
    });
  }

  // ── as the watcher of its clusters ────────────────────────────────────────────────────────────────────────────────

  knowsCrl(list: RevocationList): boolean {
    return this.#ports.others.knowsCrl(list);
  }

  onAdded(cluster: ClusterRuntime): void {
    if (this.#started) this.#openUnixOrLog(cluster);
  }

  onChanged(cluster: ClusterRuntime, what: ClusterChanges): void {
    if (what.uds) {
      this.#ports.callers.closeUnix(cluster.unix);
      this.#openUnixOrLog(cluster);
    }
    if (what.fromClusters) this.#endForeignCallers(cluster.cluster);
    if (what.callers.trust || what.callers.crl) void this.#callerReverification.verify(cluster.callers);
    if (what.routing) cluster.reverifyClaims();
    if (what.suspended && cluster.cluster.suspended) this.#closeTunnels(cluster);
    else if (what.agents.trust) cluster.reverifyAgents();
    else {
      if (what.agents.crl) cluster.endRevokedAgents(this.#turns);
      if (what.agents.material) cluster.rotateAgents("the certificate of its cluster has changed");
    }
  }

  /** Ends the CONNECTs of callers of other clusters that the document does not let in any more. */
  #endForeignCallers({ name, callers: { fromClusters = [] } }: Cluster): void {
    const refusal = new CulvertError(
      "forbidden",
      `callers of another cluster may not reach cluster "${name}" any more`,
    );
    for (const { cluster, callers } of this.#clusters?.all() ?? []) {
      if (fromClusters.includes(cluster.name)) continue;
      for (const { connects } of callers.open.all()) {
        for (const connect of connects) {
          if (connect.targetCluster === name) this.#turns.run(() => connect.refuse(refusal));
        }
      }
    }
  }

  /** The open connections of a removed cluster have as much time as at the end of the server. */
  onRemoved(cluster: ClusterRuntime): void {
    const { callers } = this.#ports;
    const { metrics, log } = this.#context;
    const { name } = cluster.cluster;
    callers.closeUnix(cluster.unix);
    metrics.forgetCluster(name);
    void callers.closeCluster(cluster.tunnels, this.#closeTunnels(cluster), RESET_MS);
    log.info({ cluster: name }, "cluster removed");
  }

  #closeTunnels({ tunnels }: ClusterRuntime): Promise<unknown> {
    return Promise.all([...tunnels.tunnels()].map((tunnel) => tunnel.close(this.#context.options.drainTimeoutMs)));
  }

  #openUnixOrLog(cluster: ClusterRuntime): void {
    this.#openUnix(cluster).catch((error: Error) => {
      const line = { cluster: cluster.cluster.name, reason: error.message };
      this.#context.log.error(line, "the unix socket of a cluster cannot be opened");
    });
  }

  async #openUnix({ unix, cluster, isOfFlags }: ClusterRuntime): Promise<void> {
    const { uds } = cluster.callers;
    if (uds === undefined || this.#context.draining()) return;
    await this.#ports.callers.openUnix(unix, uds, isOfFlags ? "--uds-name" : `${cluster.file}: callers.uds`);
    this.#ports.onUnixOpened(uds);
  }

  close(): void {
    this.#store?.close();
    this.#clusters?.close();
    this.#flags?.close();
  }
}

function hasTokens({ agents, callers }: Cluster): boolean {
  return agents.token !== undefined || callers.token !== undefined;
}
