import { type AgentIdentifiers, hostsOf } from "../../shared/address/agent-identifiers.ts";
import { printable } from "../../shared/outcomes.ts";
import { Claims } from "./claims.ts";
import type { AgentSide } from "./cluster.ts";

/**
 * Ways to choose the agents that a target is asked of. Those before the last two go by what agents say they serve.
 */
export const STRATEGIES = ["destHost", "cidr", "defaultRoute", "default"] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** How the agents of a cluster are chosen. */
export interface RoutingRules {
  /** In their order: the first that has an agent for the target chooses. */
  readonly strategies: readonly Strategy[];
  /** A target that an agent claims is never asked of one that does not. */
  readonly strict: boolean;
  /** What each agent may claim; absent: whatever it says. */
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
export function usesIdentifiers({ strategies }: Pick<RoutingRules, "strategies">): boolean {
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

/** A document without `claims` lets nobody claim anything. */
const NO_CLAIMS = new Claims([]);

/**
 * The rules of a cluster. Where a document leaves something out, those of the flags apply; but what an agent may claim
 * is said by documents alone. Without documents the agents of the one cluster may claim whatever they say.
 */
export function routingRules(
  { strategies, strictIdentifiers, claims }: AgentSide,
  flags: Omit<RoutingRules, "claims">,
  isOfFlags: boolean,
): RoutingRules {
  const rules = { strategies: strategies ?? flags.strategies, strict: strictIdentifiers ?? flags.strict };
  // Where identifiers have no effect, those of an agent that came from Konnectivity do no harm.
  const isFree = isOfFlags || !usesIdentifiers(rules);
  return { ...rules, claims: claims ?? (isFree ? undefined : NO_CLAIMS) };
}
