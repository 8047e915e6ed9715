import { BlockList, isIP } from "node:net";
import { type AgentIdentifiers, canonicalHost, hostsOf } from "../../shared/address/agent-identifiers.ts";
import { contains, type Network, parseCidr } from "../../shared/address/network.ts";
import { parseServerNamePattern } from "../../shared/address/server-name.ts";
import { matchesSubject } from "../../shared/basics/text.ts";
import { matches, type PeerIdentity, parsePattern } from "../../shared/tls/identity.ts";

/** One entry of `agents.claims` as it was written. */
export interface ClaimTexts {
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
  /** Its certificate, if that is its credential. */
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

/** What the agents of a cluster may say that they serve, by the identities in their credentials. */
export class Claims {
  readonly texts: readonly ClaimTexts[];
  readonly #entries: readonly ClaimEntry[];

  /** Throws a sentence about the first text that cannot be parsed. */
  constructor(texts: readonly ClaimTexts[]) {
    this.texts = texts;
    this.#entries = texts.map(parseEntry);
    Object.freeze(this);
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

  /** Whether this host, in its canonical form, is in what somebody may claim. */
  reserves(host: string): boolean {
    return this.#entries.some((entry) => coversHost(entry, host));
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
