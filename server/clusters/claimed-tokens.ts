import { wildcardsOverlap } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";
import { type Claim, shown } from "./claim.ts";
import { type Cluster, SIDES, type SideName } from "./cluster.ts";
import { type Outline, outline } from "./overlap-index.ts";
import type { TokenTrust } from "./token-document.ts";

/**
 * Whose tokens are accepted. Where the keys are, or which API is asked, proves nothing: what is behind a path or a URL
 * can change after it was compared (decision 0021).
 */
export function tokenClaims(cluster: Cluster): Claim[] {
  return SIDES.flatMap((side) => {
    const { token } = cluster[side];
    return token === undefined ? [] : [new TokenClaim(cluster, side, token)];
  });
}

class TokenClaim implements Claim {
  readonly key: string;
  readonly cluster: Cluster;
  readonly shares = undefined;
  readonly #side: SideName;
  readonly #audience: string;
  /** Absent: whichever the API server knows. */
  readonly #issuer: string | undefined;
  readonly #subjects: readonly SubjectPattern[];

  constructor(cluster: Cluster, side: SideName, token: TokenTrust) {
    this.key = `tokens for ${token.audience}`;
    this.cluster = cluster;
    this.#side = side;
    this.#audience = token.audience;
    this.#issuer = token.kind === "jwt" ? token.issuer : undefined;
    const subjects =
      token.kind === "jwt"
        ? token.subjects
        : [`system:serviceaccount:${token.agentNamespace}:${token.agentServiceAccount}`];
    this.#subjects = subjects.map(subjectPattern);
  }

  outlines(): readonly Outline[] {
    return this.#subjects.map(({ text }) => {
      const issuer = outline(new Map(), "issuer", [this.#issuer ?? ""]);
      return outline(issuer, "subject", text.split("*"));
    });
  }

  overlaps(other: TokenClaim): boolean {
    if (this.#issuer !== undefined && other.#issuer !== undefined && this.#issuer !== other.#issuer) return false;
    return this.#meeting(other) !== undefined;
  }

  objection(other: TokenClaim): string {
    const [own, foreign] = (this.#meeting(other) ?? []).map(({ text }) => `"${printable(text, 80)}"`);
    const theirs = `${other.#side}.token of ${shown(other.cluster)}`;
    const audience = `"${printable(this.#audience, 60)}"`;
    return `${this.#side}.token (${own}) and ${theirs} (${foreign}) take the same tokens for the audience ${audience}: give each cluster an audience of its own.`;
  }

  #meeting(other: TokenClaim): [SubjectPattern, SubjectPattern] | undefined {
    for (const own of this.#subjects) {
      for (const foreign of other.#subjects) if (subjectsMeet(own, foreign)) return [own, foreign];
    }
    return undefined;
  }
}

/** A pattern as server/tokens/verifier.ts reads it: a star ends at a colon, or alone is everybody. */
interface SubjectPattern {
  readonly text: string;
  /** Absent: everybody. */
  readonly parts?: readonly (readonly string[])[];
}

export function subjectPattern(text: string): SubjectPattern {
  return text === "*" ? { text } : { text, parts: text.split(":").map((part) => part.split("*")) };
}

/** Can one subject match both patterns? */
export function subjectsMeet({ parts }: SubjectPattern, { parts: others }: SubjectPattern): boolean {
  if (parts === undefined || others === undefined) return true;
  return parts.length === others.length && parts.every((part, index) => wildcardsOverlap(part, others[index] ?? []));
}
