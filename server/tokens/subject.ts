import { matchesWildcard } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";
import type { TokenIdentity } from "./verifier.ts";

/** A ServiceAccount as Kubernetes writes it into tokens and user names: four parts, none of which can hold a colon. */
const PREFIX = ["system", "serviceaccount"] as const;

/** An identity out of a subject that has been proved. */
export function identityOf(subject: string, expiresAt: Date): TokenIdentity {
  const [system, kind, namespace, serviceAccount, ...rest] = subject.split(":");
  const isServiceAccount = system === PREFIX[0] && kind === PREFIX[1] && rest.length === 0;
  if (!isServiceAccount || !namespace || !serviceAccount) return { subject, expiresAt };
  return { subject, namespace, serviceAccount, expiresAt };
}

/**
 * Does the pattern fit? `*` stands for any run of characters but a colon, so that it cannot reach into the next part;
 * alone, it is everybody.
 */
export function matchesSubject(pattern: string, subject: string): boolean {
  if (pattern === "*") return true;
  const wanted = pattern.split(":");
  const parts = subject.split(":");
  return wanted.length === parts.length && wanted.every((part, index) => matchesPart(part, parts[index] ?? ""));
}

/** One part of it: a namespace or a name. */
export function matchesPart(pattern: string, value: string): boolean {
  return matchesWildcard(pattern.split("*"), value);
}

/** Whoever proved who he is and may not come in. */
export function notPermitted({ subject, namespace, serviceAccount }: TokenIdentity): string {
  if (namespace === undefined) return `the token's subject "${printable(subject, 120)}" is not permitted here`;
  return `service account ${printable(`${namespace}/${serviceAccount}`, 120)} is not permitted here`;
}
