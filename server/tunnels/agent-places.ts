import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import { ALREADY_CONNECTED, CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { RoutingRules } from "../clusters/routing-rules.ts";
import type { Tunnel } from "./tunnel.ts";

/** An agent that asks for a tunnel: fields of its hello, and the identity that its credential proves. */
export interface AgentCandidate {
  readonly agentId: string;
  readonly instance: string;
  readonly identity: string;
}

/** The place of one agent in a cluster, from its hello to the end of its tunnel. */
export interface AgentPlace {
  /** A later process of the agent has the id, and this one has probably ended: its link will not be resumed. */
  readonly abandoned: boolean;
  /** From now on the tunnel gets streams; the tunnel that it replaces ends with its last stream. */
  join(tunnel: Tunnel): void;
  /** The tunnel has ended, or has never begun. */
  leave(): void;
}

interface Holder extends AgentCandidate {
  tunnel: Tunnel | undefined;
  left: boolean;
  /** The holder of the id before this one, until this one has its tunnel. */
  previous: Holder | undefined;
  readonly earlier: EarlierProcesses;
}

/** Maximum number of agents of a cluster that only measure. */
const MAX_MEASURING = 8;
/** A measurement that takes longer is ended, ms. */
const MEASURED_MS = 120_000;

export interface ClusterLimits {
  readonly serverId: string;
  readonly maxAgents: number;
  /** How long the streams of a tunnel may go on that begins after its cluster was closed, ms. */
  readonly drainTimeoutMs: number;
}

/** A cluster as its places use it. */
interface PlacesCluster {
  readonly name: string;
  readonly rules: RoutingRules;
  /** Maximum number of agents at once. */
  readonly maxAgents: number;
  /** Present: no agent gets a place. */
  readonly closedBecause: string | undefined;
  add(tunnel: Tunnel): void;
  remove(tunnel: Tunnel): void;
  tunnelAvailable(): void;
  onChanged(): void;
}

/** The places of the agents of one cluster: who has an agent id, and what becomes of the tunnel that had it before. */
export class AgentPlaces {
  readonly #cluster: PlacesCluster;
  readonly #limits: ClusterLimits;
  readonly #holders = new Map<string, Holder>();
  /** Holders whose tunnel was replaced and ends with its last stream; the oldest first. */
  readonly #replaced = new Set<Holder>();
  /** Number of agents that only measure. */
  #measuring = 0;

  constructor(cluster: PlacesCluster, limits: ClusterLimits) {
    this.#cluster = cluster;
    this.#limits = limits;
  }

  /** Reserves a place for an agent, or throws `LinkRefused`. */
  reserve(candidate: AgentCandidate): AgentPlace {
    this.#requireOpen();
    const { agentId, instance, identity } = candidate;
    const current = this.#holders.get(agentId);
    if (current === undefined && this.#holders.size >= this.#cluster.maxAgents) this.#evictOne();
    const runsBeside = current?.identity === identity && current.earlier.has(instance);
    if (runsBeside) current.earlier.note(instance, true);
    this.#admit(candidate, current, runsBeside);
    const earlier = new EarlierProcesses(current?.earlier);
    if (current !== undefined) earlier.note(current.instance, runsBeside);
    earlier.forget(instance);
    const holder: Holder = { ...candidate, earlier, tunnel: undefined, left: false, previous: current };
    this.#holders.set(agentId, holder);
    const isAbandoned = () => this.#isAbandoned(holder);
    return {
      get abandoned() {
        return isAbandoned();
      },
      join: (tunnel) => this.#join(holder, tunnel),
      leave: () => this.#leave(holder),
    };
  }

  /**
   * Admits an agent, or throws `LinkRefused`. An agent id belongs to one identity at a time:
   *
   * | holder of the id               | result                                     |
   * |--------------------------------|--------------------------------------------|
   * | none                           | admitted while there is room               |
   * | same identity, other instance  | admitted, the old tunnel drains (restart)  |
   * | same identity, same instance   | already connected, unless its tunnel drains or is suspended |
   * | same identity, has replaced this instance before (`runsBeside`) | refused: another running process |
   * | other identity                 | duplicate                                  |
   */
  #admit({ agentId, instance, identity }: AgentCandidate, holder: Holder | undefined, runsBeside: boolean): void {
    if (holder === undefined) {
      const { name, maxAgents } = this.#cluster;
      const { size } = this.#holders;
      if (size < maxAgents) return;
      throw refused("limited", `cluster "${name}" has ${size} agents, its limit (--max-agents)`);
    }
    if (holder.identity !== identity) {
      throw refused(
        "duplicate",
        `agent id "${agentId}" belongs to another certificate: give each agent its own --agent-id`,
      );
    }
    const { tunnel } = holder;
    if (tunnel?.draining || tunnel?.suspended) return; // its process may have another tunnel, or has given this one up
    if (holder.instance === instance) {
      const { serverId } = this.#limits;
      throw refused("alreadyConnected", `${ALREADY_CONNECTED}: this agent has a tunnel to server "${serverId}"`);
    }
    if (!runsBeside) return;
    // Without the port, which changes each time, repeated refusals have the same sentence.
    const from = tunnel === undefined ? "" : ` (from ${tunnel.remote.replace(/:\d+$/, "")})`;
    throw refused(
      "alreadyConnected",
      `another running process uses agent id "${agentId}"${from}: give each its own --agent-id`,
    );
  }

  /** Reserves a place for an agent that only measures (`culvert doctor`); the holder of its id keeps its place. */
  reserveProbe(): AgentPlace {
    this.#requireOpen();
    if (this.#measuring >= MAX_MEASURING) {
      throw refused(
        "limited",
        `${MAX_MEASURING} others measure their way to cluster "${this.#cluster.name}" now (culvert doctor): try again in a minute`,
      );
    }
    this.#measuring++;
    let held: Tunnel | undefined;
    let timer: NodeJS.Timeout | undefined;
    let left = false;
    return {
      abandoned: false,
      join: (tunnel) => {
        held = tunnel;
        timer = setTimeout(() => tunnel.destroy(new Error("it has measured for too long")), MEASURED_MS).unref();
        this.#cluster.add(tunnel);
        this.#endIfClosed(tunnel);
      },
      leave: () => {
        if (left) return;
        left = true;
        clearTimeout(timer);
        this.#measuring--;
        if (held !== undefined) this.#cluster.remove(held);
      },
    };
  }

  #requireOpen(): void {
    const { closedBecause } = this.#cluster;
    if (closedBecause !== undefined) throw refused("forbidden", closedBecause);
  }

  /** An agent that has lost its connection and has no streams makes room for a new one. */
  #evictOne(): void {
    for (const holder of this.#holders.values()) {
      const { tunnel } = holder;
      if (tunnel?.suspended !== true || tunnel.streamCount > 0) continue;
      tunnel.destroy(new Error("another agent needed its place (--max-agents) while it had no connection"));
      this.#leave(holder);
      return;
    }
  }

  #join(holder: Holder, tunnel: Tunnel): void {
    if (endUnclaimable(tunnel, this.#cluster)) return; // the document may have changed since its hello
    holder.tunnel = tunnel;
    this.#cluster.add(tunnel);
    const isPresent = this.#holders.get(holder.agentId) === holder;
    this.#replace(isPresent ? holder.previous : holder);
    if (isPresent) holder.previous = undefined;
    this.#endIfClosed(tunnel);
    this.#cluster.tunnelAvailable();
  }

  #endIfClosed(tunnel: Tunnel): void {
    if (this.#cluster.closedBecause !== undefined) void tunnel.close(this.#limits.drainTimeoutMs);
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
    // Replaced tunnels of an agent that is killed repeatedly would pile up.
    if (this.#replaced.size > this.#cluster.maxAgents) this.#endOneReplaced();
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

  #leave(holder: Holder): void {
    if (holder.left) return;
    holder.left = true;
    if (holder.tunnel !== undefined) this.#cluster.remove(holder.tunnel);
    this.#replaced.delete(holder);
    this.#cluster.onChanged();
    if (this.#holders.get(holder.agentId) !== holder) return;
    this.#holders.delete(holder.agentId);
    // It has never become a tunnel: the holder that it would have replaced has the id again.
    const { previous } = holder;
    if (holder.tunnel === undefined && previous !== undefined && !previous.left) {
      this.#holders.set(previous.agentId, previous);
    }
  }
}

/** Ends the tunnel of an agent whose claims the present rules do not allow. Returns whether it did. */
export function endUnclaimable(tunnel: Tunnel, { name, rules }: PlacesCluster): boolean {
  const foreign = rules.claims?.objection(tunnel.agent.identifiers, tunnel.agent);
  if (foreign === undefined) return false;
  tunnel.destroy(new Error(`the agent may no longer claim ${foreign} in cluster "${name}" (agents.claims)`));
  return true;
}

/** A refusal by one of our close codes. */
export function refused(code: keyof typeof CloseCode, reason: string): LinkRefused {
  return new LinkRefused({ closeCode: CloseCode[code], reason });
}

/** Maximum number of processes of one agent id that are remembered: the last ones. */
const KEPT = 64;

/**
 * The processes that have had an agent id before the present one, by `instance`. Most have ended, because the agent was
 * restarted. A process that asks again has not: two agents run with one id.
 */
export class EarlierProcesses {
  readonly #isRunning: Map<string, boolean>;

  /** `before`: those of the present process's predecessor. */
  constructor(before?: EarlierProcesses) {
    this.#isRunning = new Map(before === undefined ? [] : before.#isRunning);
  }

  has(instance: string): boolean {
    return this.#isRunning.has(instance);
  }

  /** Whether this process has asked for a tunnel after it was replaced. */
  isRunning(instance: string): boolean {
    return this.#isRunning.get(instance) === true;
  }

  note(instance: string, isRunning: boolean): void {
    this.#isRunning.delete(instance); // the latest is the last entry
    this.#isRunning.set(instance, isRunning);
    const [oldest] = this.#isRunning.keys();
    if (this.#isRunning.size > KEPT && oldest !== undefined) this.#isRunning.delete(oldest);
  }

  /** This process has the id again. */
  forget(instance: string): void {
    this.#isRunning.delete(instance);
  }
}
