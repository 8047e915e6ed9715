import { isIP } from "node:net";
import { hostsOf } from "../../shared/address/agent-identifiers.ts";
import { NetworkMap } from "../../shared/address/network.ts";
import type { Strategy } from "../clusters/routing-rules.ts";
import type { Tunnel } from "./tunnel.ts";

/** Claims without an agent that are remembered; the oldest is forgotten first. */
const MAX_REMEMBERED = 4_096;

/** An address, a name or a network that agents have claimed since the cluster is served. */
export interface Claim {
  readonly text: string;
  readonly tunnels: ReadonlySet<Tunnel>;
  /** The agent that was the last to claim it. */
  readonly lastAgent: string;
}

interface KnownClaim extends Claim {
  readonly tunnels: Set<Tunnel>;
  lastAgent: string;
}

/** Where claims of one kind are kept. */
interface Kept {
  get(text: string): KnownClaim | undefined;
  set(text: string, claim: KnownClaim): unknown;
  delete(text: string): unknown;
}

/** The tunnels of a cluster by the identifiers of their agents. */
export class RoutingTable {
  readonly #hosts = new Map<string, KnownClaim>();
  readonly #networks = new NetworkMap<KnownClaim>();
  readonly #defaultRoute = new Set<Tunnel>();
  /** Claims without an agent, the oldest first. */
  readonly #remembered = new Map<KnownClaim, Kept>();
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
      const claim: KnownClaim = kept.get(text) ?? { text, tunnels: new Set(), lastAgent: agentId };
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

  #remember(claim: KnownClaim, kept: Kept): void {
    this.#remembered.set(claim, kept);
    if (!this.#mayReturn(claim.text)) this.#forget(claim, kept);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    const [oldest] = this.#remembered;
    if (oldest !== undefined) this.#forget(...oldest);
  }

  #forget(claim: KnownClaim, kept: Kept): void {
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
