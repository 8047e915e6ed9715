import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import type { MemoryShare } from "../../shared/limits/memory-share.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { ALL_ALIKE, type RoutingRules, usesIdentifiers } from "../clusters/routing-rules.ts";
import { VerificationSlots } from "../tokens/verifier.ts";
import { type AgentCandidate, admit, EarlierProcesses, endUnclaimable, type IdHolder } from "./admission.ts";
import { AgentPace } from "./agent-pace.ts";
import { type Candidates, type Choice, expectedOf, noAgentAmong, RoutedCandidates } from "./candidates.ts";
import { HelloPlaces } from "./hello-places.ts";
import { MeasuringPlaces } from "./measuring-places.ts";
import { pick } from "./pick.ts";
import { ProbeRoom } from "./probes.ts";
import { RoutingTable } from "./routing-table.ts";
import type { Tunnel } from "./tunnel.ts";

/** The place of one agent in a cluster, from its hello to the end of its tunnel. */
export interface AgentPlace {
  /** A later process of the agent has the id, and this one has probably ended: its link will not be resumed. */
  readonly abandoned: boolean;
  /** From now on the tunnel gets streams; the tunnel that it replaces ends with its last stream. */
  hold(tunnel: Tunnel): void;
  /** The tunnel has ended, or has never begun. */
  release(): void;
}

export interface ClusterLimits {
  readonly serverId: string;
  readonly maxAgents: number;
  /** How long the streams of a tunnel may go on that begins after its cluster was closed, ms. */
  readonly drainTimeoutMs: number;
}

interface Holder extends AgentCandidate {
  tunnel: Tunnel | undefined;
  released: boolean;
  /** The holder of the id before this one, until this one has its tunnel. */
  previous: Holder | undefined;
  readonly earlier: EarlierProcesses;
}

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
  /** Called when a tunnel has come or gone, or has lost or got back its connection. */
  onChanged: () => void = () => {};
  readonly verifying = { agents: new VerificationSlots(), callers: new VerificationSlots() };
  readonly pace = new AgentPace();
  readonly probes = new ProbeRoom();
  /** Its connections whose hello is awaited, or that are closing. */
  readonly hellos = new HelloPlaces(this);
  /** The memory account of its tunnels and callers. */
  readonly memory: MemoryShare;
  /** Maximum number of agents at once. */
  maxAgents: number;
  /** Present: no agent gets a place, because the cluster is suspended or not served any more. */
  closedBecause: string | undefined;
  readonly #limits: ClusterLimits;
  readonly #holders = new Map<string, Holder>();
  readonly #tunnels = new Set<Tunnel>();
  /** Holders whose tunnel was replaced and ends with its last stream; the oldest first. */
  readonly #replaced = new Set<Holder>();
  readonly #waiters = new Set<() => void>();
  readonly #measuring: MeasuringPlaces;
  #rules = ALL_ALIKE;
  /** Present where agents are chosen by their identifiers. */
  #table: RoutingTable | undefined;

  constructor(name: string, limits: ClusterLimits, pool = new MemoryPool(Number.POSITIVE_INFINITY)) {
    this.name = name;
    this.memory = pool.share(name);
    this.maxAgents = limits.maxAgents;
    this.#limits = limits;
    this.#measuring = new MeasuringPlaces(name);
  }

  /** Every tunnel, also those that drain or only measure. */
  tunnels(): ReadonlySet<Tunnel> {
    return this.#tunnels;
  }

  /** How its agents are chosen. */
  get rules(): RoutingRules {
    return this.#rules;
  }

  /** Later claims are those of the tunnels that are there now, and of those that come. */
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

  /** Reserves a place for an agent, or throws `LinkRefused`. */
  reserve(candidate: AgentCandidate): AgentPlace {
    this.#requireOpen();
    const current = this.#holders.get(candidate.agentId);
    if (current === undefined && this.#holders.size >= this.maxAgents) this.#evictOne();
    const { agentId, instance, identity } = candidate;
    const runsBeside = current?.identity === identity && current.earlier.has(instance);
    if (runsBeside) current.earlier.note(instance, true);
    admit(candidate, current && { ...stateOf(current.tunnel), ...current, runsBeside }, {
      serverId: this.#limits.serverId,
      cluster: this.name,
      agents: this.#holders.size,
      maxAgents: this.maxAgents,
    });
    const earlier = new EarlierProcesses(current?.earlier);
    if (current !== undefined) earlier.note(current.instance, runsBeside);
    earlier.forget(instance);
    const holder: Holder = {
      ...{ agentId, instance, identity, earlier },
      ...{ tunnel: undefined, released: false, previous: current },
    };
    this.#holders.set(agentId, holder);
    const isAbandoned = () => this.#isAbandoned(holder);
    return {
      get abandoned() {
        return isAbandoned();
      },
      hold: (tunnel) => this.#hold(holder, tunnel),
      release: () => this.#release(holder),
    };
  }

  /** Reserves a place for an agent that only measures; the holder of its id keeps its place. */
  reserveProbe(): AgentPlace {
    this.#requireOpen();
    return this.#measuring.reserve({
      onHeld: (tunnel) => {
        this.#tunnels.add(tunnel);
        if (this.closedBecause !== undefined) void tunnel.close(this.#limits.drainTimeoutMs);
      },
      onReleased: (tunnel) => this.#tunnels.delete(tunnel),
    });
  }

  #requireOpen(): void {
    const { closedBecause } = this;
    if (closedBecause !== undefined) throw new LinkRefused({ closeCode: CloseCode.forbidden, reason: closedBecause });
  }

  /** An agent that has lost its connection and has no streams makes room for a new one. */
  #evictOne(): void {
    for (const holder of this.#holders.values()) {
      const { tunnel } = holder;
      if (tunnel?.suspended !== true || tunnel.streamCount > 0) continue;
      tunnel.destroy(new Error("another agent needed its place (--max-agents) while it had no connection"));
      this.#release(holder);
      return;
    }
  }

  #hold(holder: Holder, tunnel: Tunnel): void {
    if (endUnclaimable(tunnel, this)) return; // the document may have changed since its hello
    holder.tunnel = tunnel;
    this.#tunnels.add(tunnel);
    this.#table?.add(tunnel);
    const isPresent = this.#holders.get(holder.agentId) === holder;
    this.#replace(isPresent ? holder.previous : holder);
    if (isPresent) holder.previous = undefined;
    if (this.closedBecause !== undefined) void tunnel.close(this.#limits.drainTimeoutMs);
    this.#tryWaiters();
    this.onChanged();
  }

  #replace(holder: Holder | undefined): void {
    const tunnel = holder?.tunnel;
    if (holder === undefined || tunnel === undefined) return;
    if (tunnel.suspended && this.#isAbandoned(holder)) {
      tunnel.destroy(new Error("the agent was restarted"));
      return;
    }
    void tunnel.close(MAX_TIMER_MS); // its streams go on to their end
    this.#replaced.add(holder);
    // Those of an agent that is killed again and again would pile up.
    if (this.#replaced.size > this.maxAgents) this.#endOneReplaced();
  }

  /** Ends the oldest one whose process is not known to run, or else the oldest. */
  #endOneReplaced(): void {
    const [oldest] = this.#replaced;
    const holder = [...this.#replaced].find((each) => this.#isAbandoned(each)) ?? oldest;
    if (holder === undefined) return;
    this.#replaced.delete(holder);
    holder.tunnel?.destroy(new Error("more replaced tunnels are open than --max-agents allows agents"));
  }

  #isAbandoned({ agentId, instance }: Holder): boolean {
    const present = this.#holders.get(agentId);
    return present !== undefined && present.instance !== instance && !present.earlier.isRunning(instance);
  }

  /** A tunnel that was suspended accepts streams again. */
  tunnelResumed(): void {
    this.#tryWaiters();
    this.onChanged();
  }

  #tryWaiters(): void {
    for (const look of [...this.#waiters]) look();
  }

  #release(holder: Holder): void {
    if (holder.released) return;
    holder.released = true;
    if (holder.tunnel !== undefined) {
      this.#tunnels.delete(holder.tunnel);
      this.#table?.remove(holder.tunnel);
    }
    this.#replaced.delete(holder);
    this.onChanged();
    if (this.#holders.get(holder.agentId) !== holder) return;
    this.#holders.delete(holder.agentId);
    // It has never become a tunnel: the holder that it would have replaced has the id again.
    const { previous } = holder;
    if (holder.tunnel === undefined && previous !== undefined && !previous.released) {
      this.#holders.set(previous.agentId, previous);
    }
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

/** The state of a holder's tunnel, if it has one. */
function stateOf(tunnel: Tunnel | undefined): Pick<IdHolder, "draining" | "suspended" | "address"> {
  if (tunnel === undefined) return { draining: false, suspended: false, address: undefined };
  const { draining, suspended, remote } = tunnel;
  // Without the port, which changes each time, repeated refusals have the same sentence.
  return { draining, suspended, address: remote.replace(/:\d+$/, "") };
}
