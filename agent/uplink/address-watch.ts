import type { Target } from "../../shared/address/target.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { findAddresses, LEAST_TTL_S, MOST_TTL_S, mayHaveSeveral, type NameResolver } from "./server-addresses.ts";
import type { ServerLocation } from "./servers.ts";

export interface AddressWatchDeps {
  readonly location: ServerLocation;
  readonly resolver: NameResolver;
  /** No proxy leads to the server. A proxy resolves the name by itself, and this machine may not be able to. */
  isDirect(signal: AbortSignal): Promise<boolean>;
  /** Whether servers are missing: DNS is asked more often then. */
  isShort(): boolean;
  onChange(addresses: readonly Target[]): void;
}

/** Answers that come later are dropped, ms. */
const ASK_WITHIN_MS = 10_000;
const FAILED_AGAIN_MS = 15_000;
/** Between two questions, ms, however many tunnels are lost. */
const LEAST_PAUSE_MS = 1_000;
const JITTER = 0.1;

/** Asks DNS for the addresses of one server, again and again. */
export class AddressWatch {
  readonly #deps: AddressWatchDeps;
  readonly #answered = deferred();
  #fault: unknown;
  #timer: NodeJS.Timeout | undefined;
  #asking: AbortController | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(deps: AddressWatchDeps) {
    this.#deps = deps;
  }

  /** Asks now, unless it is under way or was done a moment ago. */
  refresh(): void {
    if (this.#closed || this.#asking !== undefined || !mayHaveSeveral(this.#deps.location)) return;
    const leastMs = this.#askedAt + LEAST_PAUSE_MS - performance.now();
    if (leastMs > 0) this.#askIn(leastMs);
    else void this.#ask();
  }

  /** Resolves when DNS was asked once, and answered or not. */
  get answered(): Promise<void> {
    return this.#answered.promise;
  }

  /** Why the last question was not answered; `undefined`: it was. */
  get fault(): unknown {
    return this.#fault;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#asking?.abort();
  }

  #askIn(ms: number): void {
    clearTimeout(this.#timer);
    const jitter = 1 - JITTER + 2 * JITTER * Math.random();
    this.#timer = setTimeout(() => this.refresh(), ms * jitter);
  }

  async #ask(): Promise<void> {
    const { location, resolver, isDirect, isShort, onChange } = this.#deps;
    const asking = new AbortController();
    this.#asking = asking;
    this.#askedAt = performance.now();
    let againMs = FAILED_AGAIN_MS;
    try {
      const signal = AbortSignal.any([asking.signal, AbortSignal.timeout(ASK_WITHIN_MS)]);
      const found = (await isDirect(signal))
        ? await findAddresses(location, resolver)
        : { addresses: [], askAgainMs: MOST_TTL_S * 1_000 };
      if (this.#closed) return;
      againMs = found.askAgainMs;
      this.#fault = undefined;
      onChange(found.addresses);
    } catch (error) {
      // Addresses that were known stay. The dial of a name has the same trouble, and the log has its sentence.
      this.#fault = error;
    } finally {
      this.#asking = undefined;
      this.#answered.resolve();
      if (!this.#closed) this.#askIn(isShort() ? Math.min(againMs, LEAST_TTL_S * 1_000) : againMs);
    }
  }
}
