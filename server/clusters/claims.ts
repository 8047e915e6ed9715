import type { Claim } from "./claim.ts";
import { certificateClaims, type FlagAuthorities } from "./claimed-certificates.ts";
import { nameClaims } from "./claimed-names.ts";
import { tokenClaims } from "./claimed-tokens.ts";
import type { Cluster } from "./cluster.ts";

/** What a cluster claims does not change as long as the flags' CAs stay. */
const known = new WeakMap<FlagAuthorities, WeakMap<Cluster, readonly Claim[]>>();

/** Everything that a cluster cannot hold together with others. */
export function claimsOf(cluster: Cluster, flags: FlagAuthorities): readonly Claim[] {
  const byCluster = known.get(flags) ?? new WeakMap<Cluster, readonly Claim[]>();
  known.set(flags, byCluster);
  const found = byCluster.get(cluster);
  if (found !== undefined) return found;
  const claims = [...nameClaims(cluster), ...certificateClaims(cluster, flags), ...tokenClaims(cluster)];
  byCluster.set(cluster, claims);
  return claims;
}
