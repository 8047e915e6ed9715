import { type Check, countOnly } from "../shared/runtime/readiness.ts";
import type { Backends } from "./backends.ts";
import type { RouteTable } from "./routes.ts";

/** What readiness looks at. */
export interface Condition {
  readonly listening: boolean;
  readonly draining: boolean;
  readonly routes: number;
  readonly files: number;
  readonly faults: readonly string[];
  /** Has this process descriptors left? */
  readonly descriptors: readonly Check[];
}

/**
 * Routes that could not be read leave the old ones in use: worth a word, and no reason to send anybody away. `shows`:
 * names and paths are for operators, counts for whoever reaches the health port.
 */
export function readiness(
  { listening, draining, routes, files, faults, descriptors }: Condition,
  shows: "names" | "counts",
): Check[] {
  const count = `${routes} in ${files} ${files === 1 ? "file" : "files"}`;
  const shownFaults =
    shows === "names"
      ? faults.map((fault) => `not in use: ${fault}`)
      : faults.slice(0, 1).map(() => countOnly(faults.length, "fault"));
  return [
    { name: "listeners", ok: listening },
    { name: "routes", ok: true, hasFaults: faults.length > 0, detail: [count, ...shownFaults].join("; ") },
    ...descriptors,
    { name: "not-draining", ok: !draining },
  ];
}

/** What `/status` shows. */
export function status(table: RouteTable, backends: Backends, condition: Condition, connections: number): unknown {
  const now = performance.now();
  return {
    kind: "router",
    draining: condition.draining,
    connections,
    faults: condition.faults,
    routes: table.routes.map(({ name, sni, to, sendProxy }) => ({ route: name, sni, backends: to.length, sendProxy })),
    backends: [...backends].map((backend) => ({
      backend: backend.address,
      state: backend.state(now),
      connections: backend.connections,
    })),
  };
}
