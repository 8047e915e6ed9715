import { deferred, untilAborted } from "../../shared/basics/promises.ts";
import {
  addressKey,
  type FoundAddress,
  findAddresses,
  formatServer,
  MAX_TTL_S,
  MIN_TTL_S,
  mayHaveSeveral,
  type NameResolver,
  noRecords,
  type ServerLocation,
} from "../context/servers.ts";

/** Receives what DNS says. */
export interface EndpointsOwner {
  /** No proxy is used for the server. A proxy resolves the name by itself, and this machine may not be able to. */
  isDirect(location: ServerLocation, signal: AbortSignal): Promise<boolean>;
  /** Whether servers are missing: DNS is asked more often then. */
  isShort(): boolean;
  /** DNS has answered. `isNew`: with an address that the answer before did not have. */
  onAnswer(isNew: boolean): void;
}

/** Answers that come later are dropped, ms. */
const ASK_WITHIN_MS = 10_000;
const FAILED_AGAIN_MS = 15_000;
/** Between two questions, ms, however many tunnels are lost. */
const MIN_PAUSE_MS = 1_000;
const JITTER = 0.1;
/** In place of a weight of 0, which shall be chosen seldom. */
const MIN_WEIGHT = 0.1;

/**
 * The addresses of the servers of one URL: those that DNS has for it, looked up repeatedly, or the name itself if there
 * is no choice. An address may be that of one server, or of a balancer in front of many.
 */
export class Endpoints {
  readonly location: ServerLocation;
  /** How logs, metrics and `/status` call it. */
  readonly name: string;
  readonly #owner: EndpointsOwner;
  readonly #resolver: NameResolver;
  readonly #random: () => number;
  /** The one that was tried last is the last. */
  #addresses: readonly FoundAddress[] = [];
  /** Addresses at which the agent has reached a server that it had a tunnel to. */
  readonly #known = new Set<string>();
  /** Addresses that could not be reached when they were tried last. */
  readonly #unreached = new Set<string>();
  /** DNS was asked once, and has answered or not. */
  readonly #answered = deferred();
  /** Why the last question was not answered; `undefined`: it was. */
  #fault: unknown;
  #timer: NodeJS.Timeout | undefined;
  #asking: AbortController | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(location: ServerLocation, owner: EndpointsOwner, resolver: NameResolver, random = Math.random) {
    this.location = location;
    this.name = formatServer(location);
    this.#owner = owner;
    this.#resolver = resolver;
    this.#random = random;
  }

  // ── what DNS says ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Asks DNS now, unless that is under way or was done a moment ago. */
  refresh(): void {
    if (this.#closed || this.#asking !== undefined || !mayHaveSeveral(this.location)) return;
    const minMs = this.#askedAt + MIN_PAUSE_MS - performance.now();
    if (minMs > 0) this.#askIn(minMs);
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
    const asking = new AbortController();
    this.#asking = asking;
    this.#askedAt = performance.now();
    let againMs = FAILED_AGAIN_MS;
    try {
      const signal = AbortSignal.any([asking.signal, AbortSignal.timeout(ASK_WITHIN_MS)]);
      const found = (await this.#owner.isDirect(this.location, signal))
        ? await findAddresses(this.location, this.#resolver)
        : { addresses: [], askAgainMs: MAX_TTL_S * 1_000 };
      if (this.#closed) return;
      againMs = found.askAgainMs;
      this.#fault = undefined;
      this.#owner.onAnswer(this.update(found.addresses));
    } catch (error) {
      // Addresses that were known stay. The dial of a name has the same trouble, and the log has its sentence.
      this.#fault = error;
    } finally {
      this.#asking = undefined;
      this.#answered.resolve();
      if (!this.#closed) this.#askIn(this.#owner.isShort() ? Math.min(againMs, MIN_TTL_S * 1_000) : againMs);
    }
  }

  /** Takes what DNS says now. Returns true where an address is new. */
  update(addresses: readonly FoundAddress[]): boolean {
    const before = new Set(this.#addresses.map(addressKey));
    const now = new Set(addresses.map(addressKey));
    // Each agent has an order of its own, or all of them would choose the same servers.
    const kept = this.#addresses.filter((address) => now.has(addressKey(address)));
    const added = addresses.filter((address) => !before.has(addressKey(address)));
    this.#addresses = [...shuffled(added, this.#random), ...kept];
    for (const marked of [this.#known, this.#unreached]) {
      for (const key of marked) if (!now.has(key)) marked.delete(key);
    }
    return added.length > 0;
  }

  // ── which of them to dial ──────────────────────────────────────────────────────────────────────────────────────

  /** How many servers there may be behind the addresses. `held`: those through which the agent has a tunnel. */
  distinct(held: ReadonlySet<string>): number {
    const may = this.#ofPriority.filter((address) => held.has(addressKey(address)) || !this.#isKnown(address));
    return Math.max(1, may.length);
  }

  /**
   * The address to dial next; `undefined`: the name itself. `held`: addresses that others are connected through or dial
   * now. `isFirst`: the agent has no tunnel, and any server is good, so that the name with all its addresses serves
   * best.
   */
  choose(held: ReadonlySet<string>, isFirst: boolean): FoundAddress | undefined {
    const isName = this.location.srv === undefined;
    if (isName && (isFirst || this.#addresses.length < 2)) return undefined;
    const all = this.#ofPriority;
    const free = all.filter((address) => !held.has(addressKey(address)) && !this.#isKnown(address));
    // Where none is left, any of them may be a balancer's.
    const next = free.find((address) => !this.#unreached.has(addressKey(address))) ?? free[0] ?? all[0];
    if (next !== undefined) this.#addresses = [...this.#addresses.filter((address) => address !== next), next];
    return next;
  }

  /**
   * The addresses of the lowest priority number of which one can be reached (RFC 2782), as far as is known. Where all
   * have failed, they are tried again from the lowest one on.
   */
  get #ofPriority(): readonly FoundAddress[] {
    const reached = this.#addresses.filter((address) => !this.#unreached.has(addressKey(address)));
    const priority = lowest(reached.length > 0 ? reached : this.#addresses);
    return this.#addresses.filter((address) => priorityOf(address) === priority);
  }

  /** Addresses of lower priority numbers, which come before this one as soon as they can be reached again. */
  before(address: FoundAddress, held: ReadonlySet<string>): readonly FoundAddress[] {
    return this.#addresses
      .filter((other) => priorityOf(other) < priorityOf(address) && !held.has(addressKey(other)))
      .toSorted((one, other) => priorityOf(one) - priorityOf(other));
  }

  /** A server was reached there, whatever it answered. */
  reached(address: FoundAddress | undefined): void {
    if (address !== undefined) this.#unreached.delete(addressKey(address));
  }

  /** No server was reached there. */
  failed(address: FoundAddress | undefined): void {
    if (address === undefined) return;
    this.#unreached.add(addressKey(address));
    if (this.#addresses.every((each) => this.#unreached.has(addressKey(each)))) this.#unreached.clear();
  }

  /** Records that a server with a tunnel of the agent was reached at this address. */
  ledToKnown(address: FoundAddress | undefined): void {
    if (address !== undefined) this.#known.add(addressKey(address));
  }

  /** Records that a server was lost: another server may be reached at its address now. */
  forget(): void {
    this.#known.clear();
  }

  #isKnown(address: FoundAddress): boolean {
    return this.#known.has(addressKey(address));
  }
}

/**
 * Addresses in random order: the weight of each is its chance to come first (RFC 2782). Without a weight: a small
 * chance.
 */
function shuffled(addresses: readonly FoundAddress[], random: () => number): FoundAddress[] {
  return addresses
    .map((address) => [(1 - random()) ** (1 / ((address.weight ?? 1) || MIN_WEIGHT)), address] as const)
    .toSorted(([one], [other]) => other - one)
    .map(([, address]) => address);
}

function priorityOf({ priority = 0 }: FoundAddress): number {
  return priority;
}

function lowest(addresses: readonly FoundAddress[]): number {
  return Math.min(...addresses.map(priorityOf));
}
