import { BlockList, isIP } from "node:net";
import { type AgentIdentifiers, canonicalHost, hostsOf } from "../../shared/address/agent-identifiers.ts";
import { contains, type Network, parseCidr } from "../../shared/address/network.ts";
import { parseServerNamePattern } from "../../shared/address/server-name.ts";
import { matchesSubject } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";
import { matches, type PeerIdentity, parsePattern } from "../../shared/tls/identity.ts";

/**
 * Ways to choose the agents that a target is asked of. All but the last two use the identifiers that agents announce.
 */
export const STRATEGIES = ["destHost", "cidr", "defaultRoute", "default"] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** The keys of a document about how agents are chosen. */
export interface RoutingKeys {
  /** Absent: `--proxy-strategies`. */
  readonly strategies?: readonly Strategy[] | undefined;
  /** Absent: `--strict-identifiers`. */
  readonly strictIdentifiers?: boolean | undefined;
  /** The identifiers that each agent may claim; absent: see `routingRules`. */
  readonly claims?: Claims | undefined;
}

/** How the agents of a cluster are chosen. */
export interface RoutingRules {
  /** In their order: the first that has an agent for the target chooses. */
  readonly strategies: readonly Strategy[];
  /** A target that an agent claims is never asked of one that does not. */
  readonly strict: boolean;
  /** The identifiers that each agent may claim; absent: any. */
  readonly claims: Claims | undefined;
}

/** Every agent of a cluster serves all its targets. */
export const ALL_ALIKE: RoutingRules = { strategies: ["default"], strict: false, claims: undefined };

export function parseStrategy(text: string): Strategy {
  const strategy = STRATEGIES.find((known) => known === text);
  if (strategy !== undefined) return strategy;
  throw new Error(`has no strategy "${printable(text, 40)}"; known are ${STRATEGIES.join(", ")}`);
}

/** Whether identifiers of agents have an effect. */
export function usesIdentifiers({ strategies }: { readonly strategies: readonly Strategy[] }): boolean {
  return strategies.some((strategy) => strategy !== "default");
}

/** The strategies that are never reached, because `default` before them takes any agent. */
export function behindDefault(strategies: readonly Strategy[]): readonly Strategy[] {
  const index = strategies.indexOf("default");
  return index < 0 ? [] : strategies.slice(index + 1);
}

/** Whether a strategy may choose an agent with these identifiers for some target. */
export function mayChoose(strategy: Strategy, identifiers: AgentIdentifiers): boolean {
  switch (strategy) {
    case "destHost":
      return hostsOf(identifiers).length > 0;
    case "cidr":
      return (identifiers.cidr?.length ?? 0) > 0;
    case "defaultRoute":
      return identifiers.defaultRoute === true;
    case "default":
      return true;
  }
}

/**
 * The rules of a cluster. Where a document leaves something out, those of the flags apply; but what an agent may claim
 * is said by documents alone. Without documents the agents of the one cluster may claim whatever they say.
 */
export function routingRules(
  { strategies, strictIdentifiers, claims }: RoutingKeys,
  flags: Omit<RoutingRules, "claims">,
  isOfFlags: boolean,
): RoutingRules {
  const rules = { strategies: strategies ?? flags.strategies, strict: strictIdentifiers ?? flags.strict };
  // Where identifiers have no effect, those of an agent that came from Konnectivity do no harm.
  const isFree = isOfFlags || !usesIdentifiers(rules);
  return { ...rules, claims: claims ?? (isFree ? undefined : NO_CLAIMS) };
}

// ── claims ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** One entry of `agents.claims` as it was written. */
interface ClaimTexts {
  /** Certificates by `CN=`, `O=`, `DNS=`, `URI=`, subjects of tokens by `SUB=`. */
  readonly identities: readonly string[];
  readonly hosts: readonly string[];
  readonly cidrs: readonly string[];
  readonly defaultRoute: boolean;
}

/** The credential of an agent, as far as it decides what the agent may claim. */
export interface Claimant {
  /** `SUB=` and the subject for a token. */
  readonly identity: string;
  /** The agent's certificate, if that is its credential. */
  readonly peer: PeerIdentity | undefined;
}

interface ClaimEntry {
  readonly mayBe: readonly ((claimant: Claimant) => boolean)[];
  /** Canonical addresses and names; `.x` for the names one label in front of `x`. */
  readonly hosts: ReadonlySet<string>;
  readonly networks: readonly Network[];
  readonly list: BlockList;
  readonly defaultRoute: boolean;
}

/** The identifiers that the agents of a cluster may claim, by the identities in their credentials. */
export class Claims {
  readonly texts: readonly ClaimTexts[];
  readonly #entries: readonly ClaimEntry[];

  /** Throws a sentence about the first text that cannot be parsed. */
  constructor(texts: readonly ClaimTexts[]) {
    this.texts = texts;
    this.#entries = texts.map(parseEntry);
  }

  /** The first identifier that this agent may not claim, as it is shown; `undefined` if it may claim all. */
  objection(identifiers: AgentIdentifiers, claimant: Claimant): string | undefined {
    const entries = this.#entries.filter(({ mayBe }) => mayBe.some((is) => is(claimant)));
    const host = hostsOf(identifiers).find((each) => !entries.some((entry) => coversHost(entry, each)));
    if (host !== undefined) return host;
    const cidr = identifiers.cidr?.find((each) => !entries.some((entry) => coversNetwork(entry, each)));
    if (cidr !== undefined) return cidr;
    return identifiers.defaultRoute === true && !entries.some(({ defaultRoute }) => defaultRoute)
      ? "the default route"
      : undefined;
  }

  /** Whether anybody may claim this address, name or network, in its canonical form. */
  allows(text: string): boolean {
    const covers = text.includes("/") ? coversNetwork : coversHost;
    return this.#entries.some((entry) => covers(entry, text));
  }
}

function coversHost({ hosts, list }: ClaimEntry, host: string): boolean {
  if (hosts.has(host)) return true;
  const version = isIP(host);
  if (version !== 0) return list.check(host, version === 4 ? "ipv4" : "ipv6");
  const dot = host.indexOf(".");
  return dot > 0 && hosts.has(host.slice(dot));
}

function coversNetwork({ networks }: ClaimEntry, cidr: string): boolean {
  const claimed = parseCidr(cidr);
  return networks.some((network) => contains(network, claimed));
}

function parseEntry({ identities, hosts, cidrs, defaultRoute }: ClaimTexts): ClaimEntry {
  const networks = cidrs.map((text) => parseCidr(text));
  const list = new BlockList();
  for (const { network, prefix } of networks) list.addSubnet(network, prefix);
  return { mayBe: identities.map(parseIdentity), hosts: new Set(hosts.map(parseHost)), networks, list, defaultRoute };
}

const SUBJECT = "SUB=";

function parseIdentity(text: string): (claimant: Claimant) => boolean {
  if (text.startsWith(SUBJECT)) {
    const pattern = text.slice(SUBJECT.length);
    return ({ identity, peer }) =>
      peer === undefined && identity.startsWith(SUBJECT) && matchesSubject(pattern, identity.slice(SUBJECT.length));
  }
  const pattern = parsePattern(text);
  return ({ peer }) => peer !== undefined && matches(pattern, peer);
}

function parseHost(text: string): string {
  if (isIP(text) !== 0) return canonicalHost(text);
  const name = parseServerNamePattern(text);
  return name.startsWith("*.") ? name.slice(1) : name;
}

/** A document without `claims` lets nobody claim anything. */
const NO_CLAIMS = new Claims([]);
