import type { ClusterRuntime } from "./cluster-runtime.ts";

/** So many clusters are told one by one: enough to see what is meant. */
const MAX_TOLD = 3;

/** A warning of all clusters together: a thousand may be made by one template. */
export function warningsOf(
  clusters: Iterable<ClusterRuntime>,
  warn: (served: ClusterRuntime) => string | undefined,
): string[] {
  const warnings = [...clusters].flatMap((served) => warn(served) ?? []);
  const more = warnings.length - MAX_TOLD;
  return more > 0 ? [...warnings.slice(0, MAX_TOLD), `the same is true of ${more} more clusters`] : warnings;
}
