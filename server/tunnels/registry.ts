import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import type { MemoryShare } from "../../shared/limits/memory-share.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { VerificationSlots } from "../tokens/verification-slots.ts";
import { admit, type Candidate, type IdHolder } from "./admit.ts";
import { AgentPace } from "./agent-pace.ts";
import { OtherProcesses } from "./other-processes.ts";
import { pick } from "./pick.ts";
import { ProbeRoom } from "./probes.ts";
import type { Tunnel } from "./tunnel.ts";

/** A promise of room for one agent, from its hello on; it becomes a tunnel or is given back. */
export interface Place {
  /** A later process of the agent holds the id, and nothing says that this one runs: nobody comes back for its link. */
  readonly abandoned: boolean;
  /** The tunnel stands: it gets streams from now on, and the one it replaces ends with its streams. */
  hold(tunnel: Tunnel): void;
  /** The tunnel is over, or never came. */
  release(): void;
}

export interface ClusterLimits {
  readonly serverId: string;
  readonly maxAgents: number;
  /** How long the streams of a tunnel may go on that comes too late, ms: its cluster is not served any more. */
  readonly drainTimeoutMs: number;
}

interface Holder extends Candidate {
  tunnel: Tunnel | undefined;
  released: boolean;
  /** Who held the id before, until this one's tunnel stands. */
  previous: Holder | undefined;
  readonly others: OtherProcesses;
}

/** Peers of a cluster that only measure, at once. */
const MAX_MEASURING = 8;
/** None of them takes so long, ms. */
const MEASURED_MS = 120_000;

/** The longest time that a timer of Node takes. A process that was replaced may run, and then its streams do, to their end. */
const NO_DEADLINE_MS = 2 ** 31 - 1;

/** The tunnels of one cluster, and the CONNECTs that wait for the first. */
export class ClusterTunnels {
  readonly name: string;
  /** CONNECTs of this cluster from their arrival to their end. */
  openConnects = 0;
  /** Those of them that were answered with 200. */
  establishedConnects = 0;
  /** CONNECTs of this cluster that have no answer yet. */
  pendingConnects = 0;
  /** Agents and callers whose token is being verified. */
  readonly verifying = { agents: new VerificationSlots(), callers: new VerificationSlots() };
  /** How often its agents begin tunnels. */
  readonly pace = new AgentPace();
  /** What its agents measure. */
  readonly probes = new ProbeRoom();
  /** What its tunnels and its callers hold. */
  readonly memory: MemoryShare;
  /** Agents that may hold a place at once. */
  maxAgents: number;
  /** Why no agent gets a place, if none does: the cluster is suspended, or is not served any more. */
  closedBecause: string | undefined;
  readonly #limits: ClusterLimits;
  readonly #holders = new Map<string, Holder>();
  readonly #tunnels = new Set<Tunnel>();
  /** Whose tunnels another one has replaced, and which end with their streams; the oldest first. */
  readonly #replaced = new Set<Holder>();
  readonly #waiters = new Set<() => void>();
  #measuring = 0;

  constructor(name: string, limits: ClusterLimits, pool = new MemoryPool(Number.POSITIVE_INFINITY)) {
    this.name = name;
    this.memory = pool.share(name);
    this.maxAgents = limits.maxAgents;
    this.#limits = limits;
  }

  /** Every tunnel, those that drain and those that only measure included. */
  tunnels(): ReadonlySet<Tunnel> {
    return this.#tunnels;
  }

  /** A tunnel for one stream, other than `except`. */
  pick(except?: Tunnel): Tunnel | undefined {
    return pick(this.#tunnels, except);
  }

  /** A tunnel that takes streams as soon as its link has a new carrier. */
  get expected(): Tunnel | undefined {
    for (const tunnel of this.#tunnels) if (tunnel.suspended && !tunnel.draining && !tunnel.closed) return tunnel;
    return undefined;
  }

  /** Room for an agent, or `LinkRefused`. Taken at once, so that two hellos at a time cannot both have it. */
  reserve(candidate: Candidate): Place {
    this.#mustBeOpen();
    const current = this.#holders.get(candidate.agentId);
    if (current === undefined && this.#holders.size >= this.maxAgents) this.#evictOne();
    const { agentId, instance, identity } = candidate;
    const runsBeside = current?.identity === identity && current.others.has(instance);
    if (runsBeside) current.others.note(instance, true);
    admit(candidate, current && { ...standing(current.tunnel), ...current, runsBeside }, {
      serverId: this.#limits.serverId,
      cluster: this.name,
      agents: this.#holders.size,
      maxAgents: this.maxAgents,
    });
    const others = new OtherProcesses(current?.others);
    if (current !== undefined) others.note(current.instance, runsBeside);
    others.forget(instance);
    const holder: Holder = {
      agentId,
      instance,
      identity,
      tunnel: undefined,
      released: false,
      previous: current,
      others,
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

  /** Room for a peer that only measures: whoever has its id is not touched. */
  reserveProbe(): Place {
    this.#mustBeOpen();
    if (this.#measuring >= MAX_MEASURING) {
      throw new LinkRefused({
        closeCode: CloseCode.limited,
        reason: `${MAX_MEASURING} others measure their way to cluster "${this.name}" now (culvert doctor): try again in a minute`,
      });
    }
    this.#measuring++;
    let held: Tunnel | undefined;
    let timer: NodeJS.Timeout | undefined;
    let released = false;
    return {
      abandoned: false,
      hold: (tunnel) => {
        held = tunnel;
        this.#tunnels.add(tunnel);
        timer = setTimeout(() => tunnel.destroy(new Error("it has measured for too long")), MEASURED_MS).unref();
        if (this.closedBecause !== undefined) void tunnel.close(this.#limits.drainTimeoutMs);
      },
      release: () => {
        if (released) return;
        released = true;
        clearTimeout(timer);
        this.#measuring--;
        if (held !== undefined) this.#tunnels.delete(held);
      },
    };
  }

  #mustBeOpen(): void {
    const { closedBecause } = this;
    if (closedBecause !== undefined) throw new LinkRefused({ closeCode: CloseCode.forbidden, reason: closedBecause });
  }

  /** An agent that has lost its connection and carries nothing makes room for one that is there. */
  #evictOne(): void {
    for (const holder of this.#holders.values()) {
      const { tunnel } = holder;
      if (tunnel?.suspended !== true || tunnel.streamCount > 0) continue;
      tunnel.destroy(new Error("its place was needed while it had no connection"));
      this.#release(holder);
      return;
    }
  }

  #hold(holder: Holder, tunnel: Tunnel): void {
    holder.tunnel = tunnel;
    this.#tunnels.add(tunnel);
    const isPresent = this.#holders.get(holder.agentId) === holder;
    this.#replace(isPresent ? holder.previous : holder);
    if (isPresent) holder.previous = undefined;
    if (this.closedBecause !== undefined) void tunnel.close(this.#limits.drainTimeoutMs);
    this.#lookAgain();
  }

  #replace(holder: Holder | undefined): void {
    const tunnel = holder?.tunnel;
    if (holder === undefined || tunnel === undefined) return;
    if (tunnel.suspended && this.#isAbandoned(holder)) {
      tunnel.destroy(new Error("the agent has begun anew"));
      return;
    }
    void tunnel.close(NO_DEADLINE_MS);
    this.#replaced.add(holder);
    // Of an agent that is killed again and again, and nobody hears of it, they would pile up.
    if (this.#replaced.size > this.maxAgents) this.#endOneReplaced();
  }

  /** Rather one that is not known to run. */
  #endOneReplaced(): void {
    const [oldest] = this.#replaced;
    const holder = [...this.#replaced].find((each) => this.#isAbandoned(each)) ?? oldest;
    if (holder === undefined) return;
    this.#replaced.delete(holder);
    holder.tunnel?.destroy(new Error("more replaced tunnels are open than --max-agents allows agents"));
  }

  #isAbandoned({ agentId, instance }: Holder): boolean {
    const present = this.#holders.get(agentId);
    return present !== undefined && present.instance !== instance && !present.others.isRunning(instance);
  }

  /** A tunnel that was suspended takes streams again. */
  tunnelResumed(): void {
    this.#lookAgain();
  }

  #lookAgain(): void {
    for (const look of [...this.#waiters]) look();
  }

  #release(holder: Holder): void {
    if (holder.released) return;
    holder.released = true;
    if (holder.tunnel !== undefined) this.#tunnels.delete(holder.tunnel);
    this.#replaced.delete(holder);
    if (this.#holders.get(holder.agentId) !== holder) return;
    this.#holders.delete(holder.agentId);
    // It never became a tunnel: what it would have replaced holds the id again.
    const { previous } = holder;
    if (holder.tunnel === undefined && previous !== undefined && !previous.released) {
      this.#holders.set(previous.agentId, previous);
    }
  }

  /** The first tunnel that takes streams, or after `timeoutMs` the sentence that says why there is none. */
  whenAvailable(timeoutMs: number, signal: AbortSignal): Promise<Tunnel> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        this.#waiters.delete(look);
        signal.removeEventListener("abort", onAbort);
      };
      const look = () => {
        const tunnel = this.pick();
        if (tunnel === undefined) return;
        stop();
        resolve(tunnel);
      };
      const fail = (reason: CulvertError) => {
        stop();
        reject(reason);
      };
      const onAbort = () => fail(signal.reason);
      const timer = setTimeout(() => fail(this.#noAgent()), Math.max(0, timeoutMs));
      this.#waiters.add(look);
      signal.addEventListener("abort", onAbort);
      if (signal.aborted) onAbort();
      else look();
    });
  }

  #noAgent(): CulvertError {
    if ([...this.#tunnels].every(({ agent }) => agent.probe))
      return new CulvertError(
        "no_agent",
        `no agent of cluster "${this.name}" is connected: check that one runs, and its log`,
      );
    const { expected } = this;
    if (expected !== undefined)
      return new CulvertError(
        "no_agent",
        `agent "${expected.agent.agentId}" has lost its connection and is not back yet: check that it runs, and the path to it`,
      );
    return new CulvertError("draining", `every agent of cluster "${this.name}" is going away: try again`);
  }
}

/** How a holder's tunnel is, as far as there is one. */
function standing(tunnel: Tunnel | undefined): Pick<IdHolder, "draining" | "suspended" | "address"> {
  if (tunnel === undefined) return { draining: false, suspended: false, address: undefined };
  const { draining, suspended, remote } = tunnel;
  // Without the port, which is another one each time: a sentence that is repeated counts as one.
  return { draining, suspended, address: remote.replace(/:\d+$/, "") };
}

/** The clusters that this server knows, and their tunnels. */
export class Registry {
  readonly #clusters = new Map<string, ClusterTunnels>();
  readonly #pool: MemoryPool | undefined;

  /** `pool`: what all clusters may hold together. */
  constructor(pool?: MemoryPool) {
    this.#pool = pool;
  }

  has(name: string): boolean {
    return this.#clusters.has(name);
  }

  add(name: string, limits: ClusterLimits): ClusterTunnels {
    const cluster = new ClusterTunnels(name, limits, this.#pool);
    this.#clusters.set(name, cluster);
    return cluster;
  }

  /** Its tunnels are its owner's to end. */
  remove(cluster: ClusterTunnels): void {
    if (this.#clusters.get(cluster.name) === cluster) this.#clusters.delete(cluster.name);
    cluster.memory.close();
  }

  cluster(name: string): ClusterTunnels {
    const cluster = this.#clusters.get(name);
    if (cluster === undefined) throw new CulvertError("unknown_cluster", `there is no cluster "${name}" here`);
    return cluster;
  }

  clusters(): Iterable<ClusterTunnels> {
    return this.#clusters.values();
  }

  /** Every tunnel of every cluster, those that drain included. */
  *tunnels(): Generator<Tunnel> {
    for (const cluster of this.#clusters.values()) yield* cluster.tunnels();
  }
}
