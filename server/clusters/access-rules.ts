import { BlockList, isIP, isIPv4, type SocketAddress } from "node:net";
import { dialledAddress, embeddedIPv4, parseCidr } from "../../shared/address/network.ts";
import { formatTarget, matchesRule, parseRule, type Rule, type Target } from "../../shared/address/target.ts";

/**
 * The targets that callers of a cluster may ask for. They are decided before the tunnel, by what the caller asks for: a
 * name is resolved at the agent, whose own policy decides on the address. Deny wins; with an allow rule, only targets
 * that an allow rule covers are allowed. A deny rule about a Service covers each spelling of its name.
 */
export class TargetRules {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  readonly #allow: readonly Rule[];
  readonly #deny: readonly Rule[];

  /** Throws a sentence about the first rule that cannot be parsed. */
  constructor(allow: readonly string[], deny: readonly string[]) {
    this.allow = allow;
    this.deny = deny;
    this.#allow = allow.map((text) => parseRule(text, "the rule"));
    this.#deny = deny.map((text) => parseRule(text, "the rule"));
  }

  /** Addresses are denied, but no allow rule keeps out the names that resolve to them. */
  get namesBypassDeny(): boolean {
    return this.#allow.length === 0 && this.#deny.some(({ kind }) => kind === "address");
  }

  /** Why the target is refused, as a sentence for the caller; `undefined` if it is allowed. */
  objection(target: Target): string | undefined {
    const { port } = target;
    const host = target.host.toLowerCase().replace(/\.$/, "");
    const address = dialledAddress(host);
    const spellings = this.#deny.length > 0 && address === undefined ? spellingsOf(host) : [host];
    const denied = this.#deny.find((rule) => spellings.some((each) => covers(rule, each, address, port)));
    if (denied !== undefined) return `the rule "deny ${denied.text}" of the cluster covers ${formatTarget(target)}`;
    if (this.#allow.length === 0 || this.#allow.some((rule) => matchesRule(rule, host, address, port)))
      return undefined;
    return `no allow rule of the cluster covers ${formatTarget(target)}`;
  }
}

/** An address that a gateway translates to an IPv4 address is denied with that one. */
function covers(rule: Rule, host: string, address: SocketAddress | undefined, port: number): boolean {
  if (matchesRule(rule, host, address, port)) return true;
  return address !== undefined && embeddedIPv4(address).some((embedded) => matchesRule(rule, host, embedded, port));
}

/** The domain that CoreDNS serves unless configured otherwise. */
const CLUSTER_DOMAIN = "cluster.local";
/** Without its domain, `pod.service.namespace` is the longest name of a Service or of a pod behind one. */
const MAX_LABELS = 3;

/**
 * The names under which the requested host may be found. The search path of a pod appends `svc.DOMAIN` and `DOMAIN` to
 * a name with few dots (Kubernetes, "DNS for Services and Pods"), so `web.default`, `web.default.svc` and
 * `web.default.svc.cluster.local` are the same. A domain other than `cluster.local` is removed and not appended. `host`
 * is in lower case and without a final dot.
 */
function spellingsOf(host: string): string[] {
  const service = withoutDomain(host);
  if (service.split(".").length > MAX_LABELS) return [host];
  const domains = ["svc", `svc.${CLUSTER_DOMAIN}`, CLUSTER_DOMAIN];
  return [host, service, ...domains.map((domain) => `${service}.${domain}`)];
}

function withoutDomain(host: string): string {
  const labels = host.split(".");
  const svc = labels.lastIndexOf("svc");
  if (svc > 0) return labels.slice(0, svc).join(".");
  return host.endsWith(`.${CLUSTER_DOMAIN}`) ? host.slice(0, -CLUSTER_DOMAIN.length - 1) : host;
}

/** The networks that connections may come from. */
export class SourceCidrs {
  /** The networks as they were written. */
  readonly texts: readonly string[];
  readonly #list = new BlockList();

  /** Throws a sentence about the first text that is no network. */
  constructor(texts: readonly string[]) {
    this.texts = texts;
    for (const text of texts) {
      const { network, prefix } = parseCidr(text);
      this.#list.addSubnet(network, prefix);
    }
  }

  /** Takes an address as a socket has it: with the zone of a link-local one, and IPv4-mapped on an IPv6 listener. */
  includes(address: string): boolean {
    const bare = address.replace(/%.*$/, "");
    return isIP(bare) !== 0 && this.#list.check(bare, isIPv4(bare) ? "ipv4" : "ipv6");
  }
}

/** Whether agents may, or must, authenticate by TLS inside the link, where a middlebox ends the TLS outside. */
export const INNER_TLS_RULES = ["never", "auto", "always"] as const;
export type InnerTlsRule = (typeof INNER_TLS_RULES)[number];
