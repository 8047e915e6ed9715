import type { SocketAddress } from "node:net";
import { dialledAddress, embeddedIPv4 } from "../../shared/net/network.ts";
import { formatTarget, type Target } from "../../shared/net/target.ts";
import { matchesRule, parseRule, type Rule } from "../../shared/net/target-rule.ts";

/**
 * Which targets the callers of a cluster may ask for, judged before the tunnel on what they ask for: a name is resolved
 * at the agent, whose own policy judges the address then. Deny wins; as soon as there is one allow rule, only what an allow
 * rule covers is allowed.
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

  /** Why not, as a sentence for the caller; `undefined`: it may be dialled. */
  judge(target: Target): string | undefined {
    const { port } = target;
    const host = target.host.toLowerCase().replace(/\.$/, "");
    const address = dialledAddress(host);
    const denied = this.#deny.find((rule) => covers(rule, host, address, port));
    if (denied !== undefined) return `the rule "deny ${denied.text}" of the cluster covers ${formatTarget(target)}`;
    if (this.#allow.length === 0 || this.#allow.some((rule) => matchesRule(rule, host, address, port)))
      return undefined;
    return `no allow rule of the cluster covers ${formatTarget(target)}`;
  }
}

/** An address that a NAT64 gateway turns into an IPv4 one is denied with that. */
function covers(rule: Rule, host: string, address: SocketAddress | undefined, port: number): boolean {
  if (matchesRule(rule, host, address, port)) return true;
  const embedded = address === undefined ? undefined : embeddedIPv4(address);
  return embedded !== undefined && matchesRule(rule, host, embedded, port);
}
