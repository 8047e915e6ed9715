import type { Duplex } from "node:stream";
import type { Target } from "../shared/address/target.ts";
import type { Upstream } from "./upstream.ts";

/** Opens connections to targets: resolves names, where it has to, and dials through a server. */
export class Dialer {
  readonly #upstream: Upstream;

  constructor(upstream: Upstream) {
    this.#upstream = upstream;
  }

  /** Rejects with a `Refusal`, or with the reason of `signal`. */
  async dial(target: Target, signal: AbortSignal): Promise<Duplex> {
    return this.#upstream.open(target, signal);
  }
}
