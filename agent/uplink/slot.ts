import type { RetryOptions } from "../../shared/basics/backoff.ts";
import { deferred, untilAborted } from "../../shared/basics/promises.ts";
import { isAlreadyConnected, LinkRefused } from "../../shared/wire/handshake.ts";
import type { AgentContext } from "../context/context.ts";
import { addressKey, type FoundAddress } from "../context/servers.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import type { Endpoints } from "./endpoints.ts";
import { Path } from "./path.ts";
import { Uplink, type UplinkOwner } from "./uplink.ts";

/** One way to dial a server, and what has been learned of it. */
export interface Way {
  readonly endpoints: Endpoints;
  /** The address to dial; `undefined`: the name. */
  readonly address: FoundAddress | undefined;
  readonly path: Path;
}

/** The uplinks among which a slot is one, as it uses them. */
export interface SlotOwner {
  /** One attempt by this way. */
  dial(way: Way, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection>;
  /** How many servers there are; `undefined`: no server knows. */
  readonly servers: number | undefined;
  /** There are more slots than servers, and this one has to wait: those that have a tunnel come first. */
  isSurplus(slot: Slot): boolean;
  /** Another slot has a tunnel. */
  hasOther(slot: Slot): boolean;
  /** The addresses that other slots are connected through, or dial now. */
  heldByOthers(slot: Slot): ReadonlySet<string>;
  onState(slot: Slot): void;
  onFailed(slot: Slot): void;
  /** The slot has reached a server that the agent has a tunnel to. */
  onKnown(slot: Slot): void;
}

/** Longest wait before the agent looks again for a server that it has no tunnel to, ms. */
const SEARCH_CAP_MS = 10_000;
/**
 * The wait grows with the time that the agent has looked: a server that was away for long may wait for its agents, too.
 */
const SEARCH_SHARE = 0.25;

/**
 * The wait before the next search for a server, ms, with full jitter. A balancer chooses among `servers` by chance or
 * in turn: all of them may be up, so the first retries come quickly. Each retry costs a server a handshake.
 */
export function searchWaitMs(answers: number, lookingMs: number, servers: number, retry: RetryOptions): number {
  const { baseMs, capMs, random = Math.random } = retry;
  const isFirst = answers <= 2 * (servers - 1);
  const ceiling = isFirst ? baseMs : Math.max(2 * baseMs, lookingMs * SEARCH_SHARE);
  return Math.round(random() * Math.min(ceiling, capMs, SEARCH_CAP_MS));
}

/**
 * One place of the agent's set of uplinks: an uplink to some server of its URL, to which no other place has one. If it
 * reaches a server that another place has, it searches further; for the uplink this is one attempt.
 */
export class Slot implements UplinkOwner {
  readonly uplink: Uplink;
  readonly endpoints: Endpoints;
  /** The address that it dials, or is connected through. */
  place: string | undefined;
  /** Attempts in a row that failed. */
  failures = 0;
  /** Whether the slot had a tunnel at the last check. */
  wasUp = false;
  /** Answers in a row of servers that the agent has tunnels to. */
  answers = 0;
  #lookingSince = 0;
  /** The slot waits until there is a server for it. */
  #isParked = false;
  readonly #set: SlotOwner;
  readonly #context: AgentContext;
  #wake: (() => void) | undefined;
  /** The address that it is connected through, or dials; `undefined`: the name. */
  #address: FoundAddress | undefined;
  /** A look for a server of a lower priority number is under way. */
  #looking: AbortController | undefined;

  constructor(endpoints: Endpoints, set: SlotOwner, context: AgentContext) {
    this.endpoints = endpoints;
    this.#set = set;
    this.#context = context;
    this.uplink = new Uplink(endpoints.name, new Path(context.options), this, context);
  }

  /** Whether the slot has a tunnel, or one that is being resumed. */
  get isUp(): boolean {
    const { state } = this.uplink.state;
    return state === "connected" || state === "suspended";
  }

  /** Whether the slot has no connection, not even one that still has streams to end. */
  get isIdle(): boolean {
    return [...this.uplink.connections()].length === 0;
  }

  /** There may be something new to find. */
  lookAgain(): void {
    this.answers = 0;
    this.#wake?.();
    this.uplink.hurry();
  }

  /** There may be a server for it now. */
  unpark(): void {
    if (this.#isParked) this.#wake?.();
  }

  /** Looks whether a server of a lower priority number can be reached again, and moves there (RFC 2782). */
  async lookLower(): Promise<void> {
    const { uplink, endpoints } = this;
    if (this.#address === undefined || this.#looking !== undefined || !uplink.connected) return;
    const looking = new AbortController();
    this.#looking = looking;
    for (const address of endpoints.before(this.#address, this.#set.heldByOthers(this))) {
      if (looking.signal.aborted) break;
      try {
        const connection = await this.#dial(address, uplink, looking.signal);
        if (!uplink.connected) {
          connection.session.destroy(new Error("the uplink is closed"));
          break;
        }
        this.#address = address;
        this.place = addressKey(address);
        this.#context.log.info({ server: endpoints.name, to: this.place }, "a lower SRV priority can be reached again");
        uplink.moveTo(connection);
        break;
      } catch {
        // The uplink stays where it is, and looks again when DNS has answered again.
      }
    }
    this.#looking = undefined;
  }

  /** One attempt at an address, which learns whether a server was reached there. */
  async #dial(address: FoundAddress | undefined, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
    const { endpoints, uplink } = this;
    try {
      const connection = await this.#set.dial({ endpoints, address, path: uplink.path }, owner, signal);
      endpoints.reached(address);
      return connection;
    } catch (error) {
      if (error instanceof LinkRefused) endpoints.reached(address);
      else if (!signal.aborted) endpoints.failed(address);
      throw error;
    }
  }

  onState(): void {
    if (!this.uplink.connected) this.#looking?.abort();
    this.#set.onState(this);
  }

  async attempt(owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
    for (;;) {
      while (this.#set.isSurplus(this)) await this.#park(signal);
      if (this.endpoints.needsRecords) await this.endpoints.resolved(signal);
      const address = this.endpoints.choose(this.#set.heldByOthers(this), !this.#set.hasOther(this));
      this.#address = address;
      this.place = address && addressKey(address);
      try {
        const connection = await this.#dial(address, owner, signal);
        this.place ??= connection.link.remote;
        this.answers = 0;
        this.failures = 0;
        return connection;
      } catch (error) {
        this.place = undefined;
        if (!isAlreadyConnected(error) || !this.#set.hasOther(this)) {
          this.failures++;
          this.#set.onFailed(this);
          throw error;
        }
      }
      this.endpoints.ledToKnown(address);
      this.uplink.failure = undefined;
      if (++this.answers === 1) this.#lookingSince = performance.now();
      this.#set.onKnown(this);
      const lookingMs = performance.now() - this.#lookingSince;
      await this.#wait(searchWaitMs(this.answers, lookingMs, this.#set.servers ?? 1, this.#context.retry), signal);
    }
  }

  async #park(signal: AbortSignal): Promise<void> {
    this.#isParked = true;
    this.uplink.failure = undefined;
    await this.#wait(undefined, signal).finally(() => {
      this.#isParked = false;
    });
  }

  /** Resolves after this time (`undefined`: never), or when the slot is woken. Rejects when the uplink is closed. */
  async #wait(ms: number | undefined, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = deferred();
    const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
    this.#wake = resolve;
    try {
      await untilAborted(promise, signal);
    } finally {
      clearTimeout(timer);
      this.#wake = undefined;
    }
  }
}
