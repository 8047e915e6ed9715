import { formatTarget, type Target } from "../shared/address/target.ts";
import type { Route, RouteTable } from "./routes.ts";

/**
 * `healthy`: the last dial reached it. `avoided`: the last dial failed, and all others are tried first. `untried`: it
 * has not been dialled yet, or not since it was avoided.
 */
export type BackendState = "healthy" | "avoided" | "untried";

/** An address of backends in routes. */
export class Backend {
  readonly address: string;
  readonly target: Target;
  /** Connections to it, those being dialled included. */
  connections = 0;
  /** Number of the last choice, so that backends with equally many connections take turns. */
  chosen = 0;
  /** Until this time it is tried after all others, ms. */
  #avoidedUntil = Number.NEGATIVE_INFINITY;
  /** Whether the last dial succeeded. */
  #wasReached = false;

  constructor(target: Target) {
    this.target = target;
    this.address = formatTarget(target);
  }

  state(now: number): BackendState {
    if (this.isAvoided(now)) return "avoided";
    return this.#wasReached ? "healthy" : "untried";
  }

  isAvoided(now: number): boolean {
    return now < this.#avoidedUntil;
  }

  reached(): void {
    this.#wasReached = true;
    this.#avoidedUntil = Number.NEGATIVE_INFINITY;
  }

  avoid(until: number): void {
    this.#wasReached = false;
    this.#avoidedUntil = until;
  }
}

/** All backends of all routes, by address. The state of a backend survives a change of the routes. */
export class Backends {
  #known = new Map<string, Backend>();
  #choices = 0;

  *[Symbol.iterator](): Iterator<Backend> {
    yield* this.#known.values();
  }

  /** Keeps only the backends of these routes from now on. */
  use(table: RouteTable): void {
    const next = new Map<string, Backend>();
    for (const target of table.routes.flatMap(({ to }) => to)) {
      const address = formatTarget(target);
      next.set(address, this.#known.get(address) ?? new Backend(target));
    }
    this.#known = next;
  }

  /** The backends of a route in the order of trying: by connections, the avoided ones last. */
  inOrder({ to }: Route, now: number): Backend[] {
    const backends = new Set(to.map((target) => this.#known.get(formatTarget(target)) ?? new Backend(target)));
    return [...backends].sort(
      (a, b) =>
        Number(a.isAvoided(now)) - Number(b.isAvoided(now)) || a.connections - b.connections || a.chosen - b.chosen,
    );
  }

  /** Call it before a dial, and `leave` once for each call. */
  enter(backend: Backend): void {
    backend.connections++;
    backend.chosen = ++this.#choices;
  }

  leave(backend: Backend): void {
    backend.connections--;
  }
}
