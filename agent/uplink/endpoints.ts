import type { Target } from "../../shared/address/target.ts";
import { deferred, untilAborted } from "../../shared/basics/promises.ts";
import {
  addressKey,
  findAddresses,
  formatServer,
  LEAST_TTL_S,
  MOST_TTL_S,
  mayHaveSeveral,
  type NameResolver,
  noRecords,
  type ServerLocation,
} from "./servers.ts";

export interface EndpointsDeps {
  readonly resolver: NameResolver;
  /** No proxy leads to the server. A proxy resolves the name by itself, and this machine may not be able to. */
  isDirect(location: ServerLocation, signal: AbortSignal): Promise<boolean>;
  /** Whether servers are missing: DNS is asked more often then. */
  isShort(): boolean;
  /** DNS has answered. `isNew`: with an address that the answer before did not have. */
  onAnswer(isNew: boolean): void;
  readonly random?: () => number;
}

/** Answers that come later are dropped, ms. */
const ASK_WITHIN_MS = 10_000;
const FAILED_AGAIN_MS = 15_000;
/** Between two questions, ms, however many tunnels are lost. */
const LEAST_PAUSE_MS = 1_000;
const JITTER = 0.1;

/**
 * The ways to the servers of one URL: the addresses that DNS has for it, asked for again and again, or the name as it
 * is where there is no choice. An address may lead to one server, or through a balancer to one of many.
 */
export class Endpoints {
  readonly location: ServerLocation;
  /** How logs, metrics and `/status` call it. */
  readonly name: string;
  readonly #deps: EndpointsDeps;
  /** The one that was tried last is the last. */
  #addresses: readonly Target[] = [];
  /** Addresses that have led to a server that the agent had a tunnel to. */
  readonly #known = new Set<string>();
  /** DNS was asked once, and has answered or not. */
  readonly #answered = deferred();
  /** Why the last question was not answered; `undefined`: it was. */
  #fault: unknown;
  #timer: NodeJS.Timeout | undefined;
  #asking: AbortController | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(location: ServerLocation, deps: EndpointsDeps) {
    this.location = location;
    this.name = formatServer(location);
    this.#deps = deps;
  }

  // ── what DNS says ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Asks DNS now, unless that is under way or was done a moment ago. */
  refresh(): void {
    if (this.#closed || this.#asking !== undefined || !mayHaveSeveral(this.location)) return;
    const leastMs = this.#askedAt + LEAST_PAUSE_MS - performance.now();
    if (leastMs > 0) this.#askIn(leastMs);
    else void this.#ask();
  }

  /** SRV records say what to dial, and none is known. Behind a proxy they are not asked for. */
  get needsRecords(): boolean {
    return this.location.srv !== undefined && this.#addresses.length === 0;
  }

  /** Resolves when DNS has answered for SRV records, or a proxy leads there. Rejects with a `RouteFault`. */
  async resolved(signal: AbortSignal): Promise<void> {
    await untilAborted(this.#answered.promise, signal);
    if (this.#fault === undefined || !this.needsRecords) return;
    this.refresh();
    throw noRecords(this.location.srv ?? "", this.#fault);
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
    const { resolver, isDirect, isShort, onAnswer } = this.#deps;
    const asking = new AbortController();
    this.#asking = asking;
    this.#askedAt = performance.now();
    let againMs = FAILED_AGAIN_MS;
    try {
      const signal = AbortSignal.any([asking.signal, AbortSignal.timeout(ASK_WITHIN_MS)]);
      const found = (await isDirect(this.location, signal))
        ? await findAddresses(this.location, resolver)
        : { addresses: [], askAgainMs: MOST_TTL_S * 1_000 };
      if (this.#closed) return;
      againMs = found.askAgainMs;
      this.#fault = undefined;
      onAnswer(this.update(found.addresses));
    } catch (error) {
      // Addresses that were known stay. The dial of a name has the same trouble, and the log has its sentence.
      this.#fault = error;
    } finally {
      this.#asking = undefined;
      this.#answered.resolve();
      if (!this.#closed) this.#askIn(isShort() ? Math.min(againMs, LEAST_TTL_S * 1_000) : againMs);
    }
  }

  /** Takes what DNS says now. Returns true where an address is new. */
  update(addresses: readonly Target[]): boolean {
    const before = new Set(this.#addresses.map(addressKey));
    const now = new Set(addresses.map(addressKey));
    // Each agent has an order of its own, or all of them would choose the same servers.
    const kept = this.#addresses.filter((address) => now.has(addressKey(address)));
    const added = addresses.filter((address) => !before.has(addressKey(address)));
    this.#addresses = [...shuffled(added, this.#deps.random ?? Math.random), ...kept];
    for (const key of this.#known) if (!now.has(key)) this.#known.delete(key);
    return added.length > 0;
  }

  // ── which of them to dial ──────────────────────────────────────────────────────────────────────────────────────

  /** How many servers there may be behind the addresses. `held`: those through which the agent has a tunnel. */
  distinct(held: ReadonlySet<string>): number {
    const may = this.#addresses.filter((address) => held.has(addressKey(address)) || !this.#isKnown(address));
    return Math.max(1, may.length);
  }

  /**
   * What to dial next; `undefined`: the name, as it is. `held`: addresses that others are connected through or dial
   * now. `isFirst`: the agent has no tunnel, and any server is good, so that the name with all its addresses serves
   * best.
   */
  choose(held: ReadonlySet<string>, isFirst: boolean): Target | undefined {
    const isName = this.location.srv === undefined;
    if (isName && (isFirst || this.#addresses.length < 2)) return undefined;
    const free = this.#addresses.filter((address) => !held.has(addressKey(address)) && !this.#isKnown(address));
    // Where none is left, any of them may be a balancer's.
    const next = free[0] ?? this.#addresses[0];
    if (next !== undefined) this.#addresses = [...this.#addresses.filter((address) => address !== next), next];
    return next;
  }

  /** The address has led to a server that the agent has a tunnel to. */
  ledToKnown(address: Target | undefined): void {
    if (address !== undefined) this.#known.add(addressKey(address));
  }

  /** A server was lost: an address that has led to it may lead to another one now. */
  forget(): void {
    this.#known.clear();
  }

  #isKnown(address: Target): boolean {
    return this.#known.has(addressKey(address));
  }
}

function shuffled<T>(values: readonly T[], random: () => number): T[] {
  return values
    .map((value) => [random(), value] as const)
    .toSorted(([one], [other]) => one - other)
    .map(([, value]) => value);
}
