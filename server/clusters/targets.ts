import type { SocketAddress } from "node:net";
import { dialledAddress, embeddedIPv4 } from "../../shared/address/network.ts";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { matchesRule, parseRule, type Rule } from "../../shared/address/target-rule.ts";
import { spellingsOf } from "./service-names.ts";

/**
 * Which targets the callers of a cluster may ask for, judged before the tunnel on what they ask for: a name is resolved
 * at the agent, whose own policy judges the address then. Deny wins; as soon as there is one allow rule, only what an allow
 * rule covers is allowed. A deny rule about a Service covers each spelling of its name.
 */
export class TargetRules {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  readonly #allow: readonly Rule[];
  readonly #deny: readonly Rule[];

  /** Throws a sentence about the first rule that is none. */
  constructor(allow: readonly string[], deny: readonly string[]) {
    this.allow = allow;
    this.deny = deny;
    this.#allow = allow.map((text) => parseRule(text, "the rule"));
    this.#deny = deny.map((text) => parseRule(text, "the rule"));
    Object.freeze(this);
  }

  /** Addresses are denied, and no allow rule keeps out the names that resolve to them. */
  get namesBypassDeny(): boolean {
    return this.#allow.length === 0 && this.#deny.some(({ kind }) => kind === "address");
  }

  /** Why not, as a sentence for the caller; `undefined`: it may be dialled. */
  judge(target: Target): string | undefined {
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

/** An address that a gateway turns into an IPv4 one is denied with that. */
function covers(rule: Rule, host: string, address: SocketAddress | undefined, port: number): boolean {
  if (matchesRule(rule, host, address, port)) return true;
  return address !== undefined && embeddedIPv4(address).some((embedded) => matchesRule(rule, host, embedded, port));
}
