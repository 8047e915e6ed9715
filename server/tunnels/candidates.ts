import { canonicalHost } from "../../shared/address/agent-identifiers.ts";
import type { Target } from "../../shared/address/target.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { RoutingRules, Strategy } from "../clusters/routing-rules.ts";
import { pick } from "./pick.ts";
import type { Claim, RoutingTable } from "./routing-table.ts";
import type { Tunnel } from "./tunnel.ts";

/** Why a tunnel was chosen for a target. */
export interface Choice {
  readonly strategy: Strategy;
  /** Present: this agent, or an entry of the document, claims the target, and no agent that does was there. */
  readonly claimedBy?: string;
}

/** The tunnels that one target may be asked of. They are looked up each time, because they come and go. */
export interface Candidates {
  /** The tunnel for the next stream, other than `except`. */
  pick(except?: Tunnel): Tunnel | undefined;
  /** One that accepts streams as soon as its link has a new carrier. */
  readonly expected: Tunnel | undefined;
  /** Only agents that claim the target may be asked, here and at other servers: identifiers are strict. */
  readonly onlyClaimed: boolean;
  /** Why one of them was picked; `undefined` where all agents are alike. */
  choiceOf(tunnel: Tunnel): Choice | undefined;
  /** Why none of them can be picked now. */
  noAgent(): CulvertError;
}

/** The cluster whose tunnels are chosen. */
export interface RoutedCluster {
  readonly name: string;
  readonly rules: RoutingRules;
  tunnels(): ReadonlySet<Tunnel>;
}

/** Tunnels that are alike for a target. */
interface Group {
  readonly strategy: Strategy;
  readonly tunnels: ReadonlySet<Tunnel>;
  readonly claim?: Claim;
}

/** The entry of a document stands for agents that have not been seen yet. */
const BY_DOCUMENT = "agents.claims";

/**
 * The tunnels for one target, by the strategies of its cluster. Among those that a strategy yields the one with the
 * fewest streams is picked, as where all agents are alike.
 */
export class RoutedCandidates implements Candidates {
  readonly #cluster: RoutedCluster;
  readonly #table: RoutingTable;
  readonly #host: string;
  /** Another server knows that the target is claimed. */
  readonly #isClaimedElsewhere: boolean;

  constructor(cluster: RoutedCluster, table: RoutingTable, target: Target, isClaimedElsewhere: boolean) {
    this.#cluster = cluster;
    this.#table = table;
    this.#host = canonicalHost(target.host);
    this.#isClaimedElsewhere = isClaimedElsewhere;
  }

  /** In the order in which they are asked. A claim of an agent ends it where identifiers are strict. */
  *#groups(): Generator<Group> {
    const { strategies } = this.#cluster.rules;
    const strict = this.#isStrict;
    for (const strategy of strategies) {
      for (const claim of this.#table.claims(strategy, this.#host)) {
        yield { strategy, tunnels: claim.tunnels, claim };
        if (strict) return;
      }
      if (strategy !== "default" && strategy !== "defaultRoute") continue;
      if (strict && this.#isReserved) return;
      yield { strategy, tunnels: strategy === "default" ? this.#cluster.tunnels() : this.#table.defaultRoute };
    }
  }

  get #isStrict(): boolean {
    return this.#cluster.rules.strict || this.#isClaimedElsewhere;
  }

  get #isReserved(): boolean {
    return this.#isClaimedElsewhere || this.#cluster.rules.claims?.reserves(this.#host) === true;
  }

  pick(except?: Tunnel): Tunnel | undefined {
    for (const { tunnels } of this.#groups()) {
      const tunnel = pick(tunnels, except);
      if (tunnel !== undefined) return tunnel;
    }
    return undefined;
  }

  get expected(): Tunnel | undefined {
    for (const { tunnels } of this.#groups()) {
      const tunnel = expectedOf(tunnels);
      if (tunnel !== undefined) return tunnel;
    }
    return undefined;
  }

  get onlyClaimed(): boolean {
    if (!this.#isStrict) return false;
    const groups = [...this.#groups()];
    return groups.length === 0 ? this.#isReserved : groups.every(({ claim }) => claim !== undefined);
  }

  choiceOf(tunnel: Tunnel): Choice | undefined {
    let claimedBy: string | undefined;
    for (const { strategy, tunnels, claim } of this.#groups()) {
      if (tunnels.has(tunnel)) {
        if (claim === undefined && claimedBy === undefined && this.#isReserved) claimedBy = BY_DOCUMENT;
        return { strategy, ...(claimedBy !== undefined && { claimedBy }) };
      }
      claimedBy ??= claim?.lastAgent;
    }
    return undefined;
  }

  noAgent(): CulvertError {
    const { name, rules } = this.#cluster;
    const groups = [...this.#groups()];
    const tunnels = groups.flatMap((group) => [...group.tunnels]);
    if (tunnels.length > 0 || this.#cluster.tunnels().size === 0) return noAgentAmong(tunnels, name);
    const host = printable(this.#host, 80);
    const claim = groups.find((group) => group.claim !== undefined)?.claim;
    if (this.#isStrict && (claim !== undefined || this.#isReserved)) {
      const who = claim === undefined ? "no agent that claims it" : `agent "${claim.lastAgent}", which claims it,`;
      const state = claim === undefined ? "is connected" : "is not connected";
      return new CulvertError(
        "no_agent",
        `${host} is for its own agents alone (strict identifiers), and ${who} ${state}: check that it runs`,
      );
    }
    return new CulvertError(
      "no_agent",
      `no agent of cluster "${name}" serves ${host} (${rules.strategies.join(", ")}): check the agents' --agent-identifiers`,
    );
  }
}

/** A tunnel that accepts streams as soon as its link has a new carrier. */
export function expectedOf(tunnels: Iterable<Tunnel>): Tunnel | undefined {
  for (const tunnel of tunnels) if (tunnel.suspended && !tunnel.draining && !tunnel.closed) return tunnel;
  return undefined;
}

/** Why none of the tunnels of a cluster, or of those for a target, can be picked. */
export function noAgentAmong(tunnels: Iterable<Tunnel>, cluster: string): CulvertError {
  if ([...tunnels].every(({ agent }) => agent.probe))
    return new CulvertError(
      "no_agent",
      `no agent of cluster "${cluster}" is connected: check that one runs, and its log`,
    );
  const expected = expectedOf(tunnels);
  if (expected !== undefined)
    return new CulvertError(
      "no_agent",
      `agent "${expected.agent.agentId}" has lost its connection and is not back yet: check that it runs, and the path to it`,
    );
  return new CulvertError("draining", `every agent of cluster "${cluster}" is going away: try again`);
}
