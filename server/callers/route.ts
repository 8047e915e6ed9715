import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { Caller } from "./authenticate.ts";

/** Which cluster a caller's CONNECTs go to: the one its credential belongs to (design: "Trust"), if it is known here. */
export function route(caller: Caller, clusters: { has(name: string): boolean }): string {
  if (clusters.has(caller.cluster)) return caller.cluster;
  throw new CulvertError("unknown_cluster", `there is no cluster "${printable(caller.cluster, 64)}" here`);
}
