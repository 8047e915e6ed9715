import type { Cluster } from "./cluster.ts";
import type { Outlined } from "./overlap-index.ts";

/**
 * Something that two clusters may not hold together as far as it overlaps: a name, a socket, the certificates of a CA, the
 * tokens for an audience. Only claims with the same key can conflict, and all of one key are of one class.
 */
export interface Claim extends Outlined {
  readonly key: string;
  readonly cluster: Cluster;
  /** Two claims for one key that share in the same way never conflict, as two readers of a lock. Absent: it has to be compared. */
  readonly shares: string | undefined;
  /** Asked only where they do not share in the same way. */
  overlaps(other: Claim): boolean;
  /** What the author of this claim's document reads when `other` keeps it out. */
  objection(other: Claim): string;
}

/** Two claims of different clusters that cannot both be granted. */
export function conflict(one: Claim, other: Claim): boolean {
  const { shares } = one;
  if (one.cluster === other.cluster || (shares !== undefined && shares === other.shares)) return false;
  return one.overlaps(other);
}

/** A cluster in a sentence: its name, its file and the number of its document. */
export function shown({ name, file, document }: Cluster): string {
  return `cluster "${name}" (${file}${document === undefined ? "" : `, document ${document}`})`;
}
