import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { AgentContext } from "../context/context.ts";
import { wantedServers } from "../context/servers.ts";
import { Endpoints, type EndpointsOwner } from "./endpoints.ts";
import { Slot, type SlotOwner } from "./slot.ts";
import type { Uplink } from "./uplink.ts";

/** Maximum number of servers that `--uplinks all` finds by itself. */
const MAX_FOUND = 4;
/** A slot that has failed this many times looks at another URL, where no other slot does. */
const FAILURES_TO_MOVE = 3;
/** After this number of answers the log says that no other server was found. */
const FRUITLESS_ANSWERS = 20;

/** How many uplinks an agent keeps at most. */
export function maxUplinks(uplinks: string, urls: number): number {
  return uplinks === "all" ? Math.max(MAX_FOUND, urls) : Number(uplinks);
}

/**
 * The agent's uplinks, each to another server: of every URL, of every address that DNS has for a URL, and of the
 * servers behind a balancer, which is dialled again until enough different ones have answered.
 *
 * ```
 *  URLs of --server ──▶ endpoints (DNS, SRV) ──▶ slots: one uplink each  ◀── how many: welcome, `servers`, DNS
 * ```
 */
export class UplinkSet implements SlotOwner, EndpointsOwner {
  readonly isDirect: EndpointsOwner["isDirect"];
  readonly dial: SlotOwner["dial"];
  readonly #context: AgentContext;
  /** Of each URL. */
  readonly #urls: readonly Endpoints[];
  readonly #max: number;
  readonly #log: ThrottledLog;
  readonly #announced = new AnnouncedCount();
  #slots: Slot[] = [];
  #isScheduled = false;
  /** Set when the agent drains or closes: nothing is looked for any more. */
  #hasEnded = false;
  readonly #waiters: { resolve: () => void; reject: (error: Error) => void }[] = [];

  constructor(context: AgentContext, isDirect: EndpointsOwner["isDirect"], dial: SlotOwner["dial"]) {
    this.isDirect = isDirect;
    this.dial = dial;
    this.#context = context;
    this.#log = new ThrottledLog(context.log);
    this.#urls = wantedServers(context.options).map((location) => new Endpoints(location, this, context.resolver));
    this.#max = maxUplinks(context.options.uplinks, this.#urls.length);
    for (const endpoints of this.#urls.slice(0, this.#max)) this.#add(endpoints);
  }

  /** An uplink for each server that is wanted, including those that still look for one. */
  get uplinks(): readonly Uplink[] {
    return this.#slots.map(({ uplink }) => uplink);
  }

  /** How many servers there are, as the connected ones have said; `undefined`: none of them knows. */
  get servers(): number | undefined {
    return this.#announced.servers;
  }

  /** How many servers the agent wants tunnels to. */
  get wanted(): number {
    // A number that the operator gives is meant: where no server says how many there are, an alert needs it.
    const isGiven = this.#context.options.uplinks !== "all";
    return this.servers === undefined && isGiven ? this.#max : this.#wantedOfFound;
  }

  get #wantedOfFound(): number {
    return Math.min(this.#max, Math.max(this.#urls.length, this.servers ?? this.#found()));
  }

  get connected(): boolean {
    return this.#slots.filter(({ uplink }) => uplink.connected).length >= this.wanted;
  }

  start(): void {
    for (const { uplink } of this.#slots) uplink.start();
    const hasRecords = this.#urls.some(({ location }) => location.srv !== undefined);
    if (this.#max > 1 || hasRecords) this.#askDns();
  }

  /** Resolves when there is a tunnel to each server that is wanted. */
  whenConnected(): Promise<void> {
    if (this.#hasEnded) return Promise.reject(new Error("the uplinks are closed"));
    if (this.connected) return Promise.resolve();
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  /** Credentials have changed: every connection gets a new carrier. */
  changeCarriers(): void {
    for (const { uplink } of this.#slots) uplink.changeCarriers();
  }

  drain(): void {
    this.#end();
    for (const { uplink } of this.#slots) uplink.drain();
  }

  async close(deadlineMs: number): Promise<void> {
    this.#end();
    await Promise.all(this.#slots.map(({ uplink }) => uplink.close(deadlineMs)));
  }

  destroy(reason: Error): void {
    this.#end();
    for (const { uplink } of this.#slots) uplink.destroy(reason);
  }

  #end(): void {
    this.#hasEnded = true;
    for (const endpoints of this.#urls) endpoints.close();
    for (const { reject } of this.#waiters.splice(0)) reject(new Error("the uplinks are closed"));
  }

  // ── for its URLs and slots ─────────────────────────────────────────────────────────────────────────────────────

  isShort(): boolean {
    return this.#upCount() < this.wanted;
  }

  onAnswer(isNew: boolean): void {
    this.#schedule();
    if (isNew) this.#lookAgain();
    for (const slot of this.#slots) void slot.lookLower();
  }

  /** There are more slots than servers, and this one has to wait: those that have a tunnel come first. */
  isSurplus(slot: Slot): boolean {
    const up = this.#upCount();
    if (slot.isUp) return false;
    const before = this.#slots.filter((each) => !each.isUp).indexOf(slot);
    return up + before >= this.wanted;
  }

  /** Another slot has a tunnel. */
  hasOther(slot: Slot): boolean {
    return this.#slots.some((each) => each !== slot && each.isUp);
  }

  /** The addresses that other slots are connected through, or dial now. */
  heldByOthers(slot: Slot): ReadonlySet<string> {
    return this.#held(this.#slots.filter((each) => each !== slot));
  }

  onState(slot: Slot): void {
    const { isUp, wasUp, endpoints } = slot;
    slot.wasUp = isUp;
    if (wasUp && !isUp) {
      endpoints.forget();
      endpoints.refresh();
    }
    this.#schedule();
  }

  onFailed(slot: Slot): void {
    // Behind the line about the failure.
    if (slot.failures >= FAILURES_TO_MOVE) setImmediate(() => this.#moveOn(slot, (next) => this.#slotsOf(next) === 0));
  }

  /** The slot has reached a server that the agent has a tunnel to. */
  onKnown(slot: Slot): void {
    const { name: server } = slot.endpoints;
    const line = { server, connected: this.#upCount(), wanted: this.wanted, servers: this.servers };
    const { answers } = slot;
    if (answers === 1) this.#log.write("info", line, "looking for another server");
    if (answers === FRUITLESS_ANSWERS) this.#log.write("warn", line, "no other server was found yet");
    const isInVain = answers % FRUITLESS_ANSWERS === 0 && this.#slotsOf(slot.endpoints) > 1;
    if (isInVain) setImmediate(() => this.#moveOn(slot, () => true));
    this.#schedule();
  }

  // ── how many there are ─────────────────────────────────────────────────────────────────────────────────────────

  #readCount(): void {
    const announced = this.#slots.flatMap(({ uplink: { state } }) =>
      state.state === "connected" || state.state === "suspended" ? (state.connection.servers ?? []) : [],
    );
    if (this.#announced.take(announced, () => this.#schedule())) this.#lookAgain();
  }

  #found(): number {
    const held = this.#held(this.#slots.filter(({ isUp }) => isUp));
    return this.#urls.reduce((sum, endpoints) => sum + endpoints.distinct(held), 0);
  }

  #held(slots: readonly Slot[]): ReadonlySet<string> {
    return new Set(slots.flatMap(({ place }) => place ?? []));
  }

  #upCount(): number {
    return this.#slots.filter(({ isUp }) => isUp).length;
  }

  #slotsOf(endpoints: Endpoints): number {
    return this.#slots.filter((slot) => slot.endpoints === endpoints).length;
  }

  #lookAgain(): void {
    if (this.#hasEnded) return;
    for (const slot of this.#slots) if (!slot.isUp) slot.lookAgain();
    this.#askDns();
  }

  #askDns(): void {
    for (const endpoints of this.#urls) endpoints.refresh();
  }

  // ── as many slots as servers ───────────────────────────────────────────────────────────────────────────────────

  /** Later, because an uplink that changes its state is in the middle of it. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#adjust();
    });
  }

  #adjust(): void {
    if (this.#hasEnded) return;
    this.#readCount();
    const { wanted } = this;
    // Before the first tunnel no server has said how many there are: there is nothing to look for yet.
    const enough = this.#upCount() === 0 ? this.#wantedOfFound : wanted;
    while (this.#slots.length < enough) this.#add(this.#nextGroup()).uplink.start();
    for (const slot of this.#slots.toReversed()) {
      // A tunnel is never closed because of a number.
      if (this.#slots.length > wanted && slot.isIdle && this.#isSpare(slot)) this.#remove(slot);
    }
    for (const slot of this.#slots) slot.unpark();
    if (!this.connected) return;
    for (const { resolve } of this.#waiters.splice(0)) resolve();
  }

  /** Each URL keeps a slot, if there are enough. */
  #isSpare({ endpoints }: Slot): boolean {
    return this.#urls.length > this.#max || this.#slotsOf(endpoints) > 1;
  }

  /** The URL that has the most addresses for its slots. */
  #nextGroup(): Endpoints {
    const held = this.#held(this.#slots.filter(({ isUp }) => isUp));
    const room = (endpoints: Endpoints): number => endpoints.distinct(held) - this.#slotsOf(endpoints);
    const [first] = this.#urls.toSorted((one, other) => room(other) - room(one));
    if (first === undefined) throw new Error("an agent without a server");
    return first;
  }

  #add(endpoints: Endpoints): Slot {
    const slot = new Slot(endpoints, this, this.#context);
    this.#slots.push(slot);
    return slot;
  }

  #remove(slot: Slot): void {
    this.#slots = this.#slots.filter((each) => each !== slot);
    slot.uplink.destroy(new Error("there is no other server to connect to"));
  }

  /** Moves the slot to the next URL that serves, in the order given, unless it has found a server. */
  #moveOn(slot: Slot, serves: (endpoints: Endpoints) => boolean): void {
    const at = this.#urls.indexOf(slot.endpoints);
    const next = [...this.#urls.slice(at + 1), ...this.#urls.slice(0, at)].find(serves);
    if (next === undefined || this.#hasEnded || !this.#slots.includes(slot) || !slot.isIdle) return;
    this.#remove(slot);
    this.#add(next).uplink.start();
  }
}

/** A new number of servers is acted on once in this time, ms: each may begin uplinks, or end them. */
const COUNT_EVERY_MS = 1_000;

/** How many servers there are, as those that are connected announce it. */
export class AnnouncedCount {
  /** `undefined`: none has. */
  servers: number | undefined;
  #countedAt = Number.NEGATIVE_INFINITY;
  #later: NodeJS.Timeout | undefined;

  /**
   * Takes the greatest number that a connected server has announced last; while none is connected the last one stays.
   * Returns whether there are more servers now. Where it is too soon for a new number, `later` is called in time.
   */
  take(announced: readonly number[], later: () => void): boolean {
    const count = announced.length === 0 ? this.servers : Math.max(...announced);
    if (count === undefined || count === this.servers) return false;
    const waitMs = this.#countedAt + COUNT_EVERY_MS - performance.now();
    if (waitMs > 0) {
      this.#later ??= setTimeout(() => {
        this.#later = undefined;
        later();
      }, waitMs).unref();
      return false;
    }
    const isMore = count > (this.servers ?? 1);
    this.#countedAt = performance.now();
    this.servers = count;
    return isMore;
  }
}
