import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { MemoryPool, type MemoryShare } from "../../shared/limits/memory-pool.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import { ALL_ALIKE, type RoutingRules, usesIdentifiers } from "../clusters/routing-rules.ts";
import { VerificationSlots } from "../tokens/verifier.ts";
import { AgentPace, HelloPlaces } from "./agent-limits.ts";
import { AgentPlaces, type ClusterLimits } from "./agent-places.ts";
import {
  type Candidates,
  type Choice,
  expectedOf,
  noAgentAmong,
  RoutedCandidates,
  RoutingTable,
} from "./candidates.ts";
import { pick, type Tunnel } from "./tunnel.ts";

/**
 * The tunnels of one cluster, and the CONNECTs that wait for the first. Where all agents are alike, all tunnels are
 * candidates for every target.
 */
export class ClusterTunnels implements Candidates {
  readonly name: string;
  /** CONNECTs of this cluster from their arrival to their end. */
  openConnects = 0;
  /** CONNECTs of this cluster that were answered with 200. */
  establishedConnects = 0;
  /** CONNECTs of this cluster that have no answer yet. */
  pendingConnects = 0;
  /** Streams of its callers that go over another server. */
  hopStreams = 0;
  /** CONNECTs that came over another server, which has admitted them; they are among those of the tunnels here. */
  readonly ofPeers = { pending: 0, open: 0 };
  /** Called when a tunnel was added, drains or was removed, and when it has lost or regained its connection. */
  onChanged: () => void = () => {};
  readonly verifying = { agents: new VerificationSlots(), callers: new VerificationSlots() };
  readonly places: AgentPlaces;
  readonly pace = new AgentPace();
  /** Connections of the cluster whose hello is awaited, or that are closing. */
  readonly hellos = new HelloPlaces(this);
  /** The memory account of its tunnels and callers. */
  readonly memory: MemoryShare;
  /** Maximum number of agents at once. */
  maxAgents: number;
  /** Present: no agent gets a place, because the cluster is suspended or not served any more. */
  closedBecause: string | undefined;
  readonly #tunnels = new Set<Tunnel>();
  readonly #waiters = new Set<() => void>();
  #rules = ALL_ALIKE;
  /** Present where agents are chosen by their identifiers. */
  #table: RoutingTable | undefined;

  constructor(name: string, limits: ClusterLimits, pool = new MemoryPool(Number.POSITIVE_INFINITY)) {
    this.name = name;
    this.memory = pool.share(name);
    this.maxAgents = limits.maxAgents;
    this.places = new AgentPlaces(this, limits);
  }

  /** Every tunnel, also those that drain or only measure. */
  tunnels(): ReadonlySet<Tunnel> {
    return this.#tunnels;
  }

  /** How its agents are chosen. */
  get rules(): RoutingRules {
    return this.#rules;
  }

  /** Replaces the rules. A table that is created now has the claims of present tunnels and of later ones. */
  set rules(rules: RoutingRules) {
    this.#rules = rules;
    if (!usesIdentifiers(rules)) this.#table = undefined;
    else this.#table ??= new RoutingTable([...this.#tunnels].filter(({ agent }) => !agent.probe));
    this.#table?.rememberIf((text) => rules.claims?.allows(text) ?? true);
    this.#tryWaiters();
  }

  /** The tunnels that this target may be asked of. `onlyClaimed`: those that claim it, as another server says. */
  candidates(target: Target, onlyClaimed = false): Candidates {
    if (this.#table === undefined && !onlyClaimed) return this;
    return new RoutedCandidates(this, this.#table ?? new RoutingTable(), target, onlyClaimed);
  }

  pick(except?: Tunnel): Tunnel | undefined {
    return pick(this.#tunnels, except);
  }

  get expected(): Tunnel | undefined {
    return expectedOf(this.#tunnels);
  }

  readonly onlyClaimed = false;

  choiceOf(): Choice | undefined {
    return undefined;
  }

  /** The agent of this tunnel has come, and gets streams from `tunnelAvailable` on. */
  add(tunnel: Tunnel): void {
    this.#tunnels.add(tunnel);
    if (!tunnel.agent.probe) this.#table?.add(tunnel);
  }

  /** The tunnel has ended. */
  remove(tunnel: Tunnel): void {
    this.#tunnels.delete(tunnel);
    this.#table?.remove(tunnel);
  }

  /** A new tunnel, or one that was suspended, accepts streams. */
  tunnelAvailable(): void {
    this.#tryWaiters();
    this.onChanged();
  }

  #tryWaiters(): void {
    for (const look of [...this.#waiters]) look();
  }

  /**
   * Resolves with the first of the candidates that accepts streams. Rejects with a `CulvertError` after `timeoutMs`,
   * and with the reason of the cancellation.
   */
  whenAvailable(
    timeoutMs: number,
    cancellation: Cancellation<CulvertError>,
    candidates: Candidates = this,
  ): Promise<Tunnel> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        this.#waiters.delete(look);
        cancellation.onCancelled = undefined;
      };
      const look = () => {
        const tunnel = candidates.pick();
        if (tunnel === undefined) return;
        stop();
        resolve(tunnel);
      };
      const fail = (reason: CulvertError) => {
        stop();
        reject(reason);
      };
      const onCancelled = () => fail(cancellation.reason as CulvertError);
      const timer = setTimeout(() => fail(candidates.noAgent()), Math.max(0, timeoutMs));
      this.#waiters.add(look);
      cancellation.onCancelled = onCancelled;
      if (cancellation.reason !== undefined) onCancelled();
      else look();
    });
  }

  noAgent(): CulvertError {
    return noAgentAmong(this.#tunnels, this.name);
  }
}

/** The clusters of this server and their tunnels. */
export class Registry {
  readonly #clusters = new Map<string, ClusterTunnels>();
  readonly #pool: MemoryPool | undefined;
  #onChanged: (name: string, cluster: ClusterTunnels | undefined) => void = () => {};
  /**
   * Names of clusters that have come, have gone, or whose document, agents or refusals have changed. Kept only for one
   * who empties it.
   */
  changed: Set<string> | undefined;

  /** `pool`: the memory that all clusters share. */
  constructor(pool?: MemoryPool) {
    this.#pool = pool;
  }

  add(name: string, limits: ClusterLimits): ClusterTunnels {
    const cluster = new ClusterTunnels(name, limits, this.#pool);
    cluster.onChanged = () => {
      this.changed?.add(name);
      this.#onChanged(name, this.#clusters.get(name));
    };
    this.#clusters.set(name, cluster);
    this.changed?.add(name);
    return cluster;
  }

  /** Forgets the cluster. The code that calls this closes its tunnels. */
  remove(cluster: ClusterTunnels): void {
    if (this.#clusters.get(cluster.name) === cluster) this.#clusters.delete(cluster.name);
    cluster.memory.close();
    cluster.onChanged();
  }

  /** Sets what is called when tunnels of a cluster have changed or it was removed, and calls it for each cluster. */
  watch(onChanged: (name: string, cluster: ClusterTunnels | undefined) => void): void {
    this.#onChanged = onChanged;
    for (const [name, cluster] of this.#clusters) onChanged(name, cluster);
  }

  /** By their names. */
  get clusters(): ReadonlyMap<string, ClusterTunnels> {
    return this.#clusters;
  }

  /** Every tunnel of every cluster, also those that drain. */
  *tunnels(): Generator<Tunnel> {
    for (const cluster of this.#clusters.values()) yield* cluster.tunnels();
  }
}
