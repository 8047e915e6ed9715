import { type Check, countOnly } from "../shared/runtime/readiness.ts";
import type { Backends } from "./backends.ts";
import type { RouteTable } from "./routes.ts";

/** The state that readiness and status report. */
export interface RouterCondition {
  readonly listening: boolean;
  readonly draining: boolean;
  readonly routes: number;
  readonly files: number;
  readonly faults: readonly string[];
  /** Checks of the file descriptors of this process. */
  readonly descriptors: readonly Check[];
}

/**
 * The checks of `/readyz`. Routes that cannot be used leave the last ones in use, so they do not fail it. Names and
 * paths are for operators; the health port may show counts only.
 */
export function readiness(
  { listening, draining, routes, files, faults, descriptors }: RouterCondition,
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

/** The content of `/status`. */
export function status(
  table: RouteTable,
  backends: Backends,
  condition: RouterCondition,
  connections: number,
): unknown {
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
