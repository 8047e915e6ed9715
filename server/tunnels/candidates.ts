import { isIP } from "node:net";
import { canonicalHost, hostsOf } from "../../shared/address/agent-identifiers.ts";
import { NetworkMap } from "../../shared/address/network.ts";
import type { Target } from "../../shared/address/target.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { RoutingRules, Strategy } from "../clusters/routing-rules.ts";
import { pick, type Tunnel } from "./tunnel.ts";

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
  /** A tunnel that accepts streams as soon as its link has a new carrier. */
  readonly expected: Tunnel | undefined;
  /** Only agents that claim the target may be asked, here and at other servers: identifiers are strict. */
  readonly onlyClaimed: boolean;
  /** Why one of them was picked; `undefined` where all agents are alike. */
  choiceOf(tunnel: Tunnel): Choice | undefined;
  /** Why none of them can be picked now. */
  noAgent(): CulvertError;
}

/** Tunnels that are alike for a target. */
interface Group {
  readonly strategy: Strategy;
  readonly tunnels: ReadonlySet<Tunnel>;
  readonly claim?: Claim;
}

/** An entry of a document counts for agents that have not been seen yet. */
const BY_DOCUMENT = "agents.claims";

/** A cluster whose agents are chosen by its rules. */
interface RoutedCluster {
  readonly name: string;
  readonly rules: RoutingRules;
  tunnels(): ReadonlySet<Tunnel>;
}

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

  /** In the order in which they are asked. With strict identifiers the search stops at the first claim. */
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
    return this.#isClaimedElsewhere || this.#cluster.rules.claims?.allows(this.#host) === true;
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
      const who =
        claim === undefined
          ? "no agent that claims it is connected"
          : `agent "${claim.lastAgent}", which claims it, is not connected`;
      return noAgent(`${host} is for its own agents alone (strict identifiers), and ${who}: check that it runs`);
    }
    const how = rules.strategies.join(", ");
    return noAgent(`no agent of cluster "${name}" serves ${host} (${how}): check the agents' --agent-identifiers`);
  }
}

/** A tunnel that accepts streams as soon as its link has a new carrier. */
export function expectedOf(tunnels: Iterable<Tunnel>): Tunnel | undefined {
  for (const tunnel of tunnels) if (tunnel.suspended && !tunnel.draining && !tunnel.closed) return tunnel;
  return undefined;
}

/** Why none of the tunnels of a cluster, or of those for a target, can be picked. */
export function noAgentAmong(tunnels: Iterable<Tunnel>, cluster: string): CulvertError {
  if ([...tunnels].every(({ agent }) => agent.probe)) {
    return noAgent(`no agent of cluster "${cluster}" is connected: check that one runs, and its log`);
  }
  const lost = expectedOf(tunnels)?.agent.agentId;
  if (lost === undefined) {
    return new CulvertError(
      "draining",
      `every agent of cluster "${cluster}" is shutting down, and no other is connected: check that one runs`,
    );
  }
  return noAgent(`agent "${lost}" has lost its connection and is not back yet: check that it runs, and the path to it`);
}

function noAgent(sentence: string): CulvertError {
  return new CulvertError("no_agent", sentence);
}

// ── what the agents claim ───────────────────────────────────────────────────────────────────────────────────────────

/** Claims without an agent that are remembered; the oldest is forgotten first. */
const MAX_REMEMBERED = 4_096;

/** An address, a name or a network that agents have claimed since the cluster is served. */
interface Claim {
  readonly text: string;
  readonly tunnels: Set<Tunnel>;
  /** The agent that was the last to claim it. */
  lastAgent: string;
}

/** Where claims of one kind are kept. */
interface Kept {
  get(text: string): Claim | undefined;
  set(text: string, claim: Claim): unknown;
  delete(text: string): unknown;
}

/** The tunnels of a cluster by the identifiers of their agents. */
export class RoutingTable {
  readonly #hosts = new Map<string, Claim>();
  readonly #networks = new NetworkMap<Claim>();
  readonly #defaultRoute = new Set<Tunnel>();
  /** Claims without an agent, the oldest first. */
  readonly #remembered = new Map<Claim, Kept>();
  #mayReturn: (text: string) => boolean = () => true;

  constructor(tunnels: Iterable<Tunnel> = []) {
    for (const tunnel of tunnels) this.add(tunnel);
  }

  /** Remembers claims without an agent as long as an agent may claim them again; forgets the others. */
  rememberIf(mayReturn: (text: string) => boolean): void {
    this.#mayReturn = mayReturn;
    for (const [claim, kept] of this.#remembered) if (!mayReturn(claim.text)) this.#forget(claim, kept);
  }

  add(tunnel: Tunnel): void {
    const { identifiers, agentId } = tunnel.agent;
    for (const [kept, text] of this.#claimsOf(tunnel)) {
      const claim: Claim = kept.get(text) ?? { text, tunnels: new Set(), lastAgent: agentId };
      claim.tunnels.add(tunnel);
      claim.lastAgent = agentId;
      this.#remembered.delete(claim);
      kept.set(text, claim);
    }
    if (identifiers.defaultRoute === true) this.#defaultRoute.add(tunnel);
  }

  remove(tunnel: Tunnel): void {
    this.#defaultRoute.delete(tunnel);
    for (const [kept, text] of this.#claimsOf(tunnel)) {
      const claim = kept.get(text);
      if (claim?.tunnels.delete(tunnel) === true && claim.tunnels.size === 0) this.#remember(claim, kept);
    }
  }

  #remember(claim: Claim, kept: Kept): void {
    this.#remembered.set(claim, kept);
    if (!this.#mayReturn(claim.text)) this.#forget(claim, kept);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    const [oldest] = this.#remembered;
    if (oldest !== undefined) this.#forget(...oldest);
  }

  #forget(claim: Claim, kept: Kept): void {
    this.#remembered.delete(claim);
    kept.delete(claim.text);
  }

  *#claimsOf({ agent: { identifiers } }: Tunnel): Generator<readonly [Kept, string]> {
    for (const host of hostsOf(identifiers)) yield [this.#hosts, host];
    for (const cidr of identifiers.cidr ?? []) yield [this.#networks, cidr];
  }

  /** The claims that a host, in its canonical form, is covered by, the most specific first. */
  *claims(strategy: Strategy, host: string): Generator<Claim> {
    if (strategy === "destHost") {
      const claim = this.#hosts.get(host);
      if (claim !== undefined) yield claim;
    } else if (strategy === "cidr" && isIP(host) !== 0) yield* this.#networks.covering(host);
  }

  /** The agents of the default route. */
  get defaultRoute(): ReadonlySet<Tunnel> {
    return this.#defaultRoute;
  }
}
