import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import { Acks } from "./acks.ts";
import { type Carrier, CarrierLost } from "./carrier.ts";
import type { ControlMessage } from "./control.ts";
import { IN_FLIGHT_FLOOR, InFlight } from "./in-flight.ts";
import { Replay } from "./replay.ts";

/** What the links of a process keep together, against a bound that is none of one link's. */
export interface LinkPool {
  /** The pool is used up: a link has no more under way than the least with which it still moves. */
  readonly isSpent: boolean;
  /** Bytes that are kept have changed by `delta`. */
  hold(delta: number): void;
}

const UNBOUNDED_POOL: LinkPool = { isSpent: false, hold: () => {} };

export interface LinkOptions {
  /** How long a link waits for a new carrier, ms; 0: it ends with its carrier. */
  readonly graceMs: number;
  /** Bytes kept for a new carrier, and so the most that may be unacknowledged. */
  readonly replayBytes: number;
  /** Left out: only `replayBytes` bounds what is kept. */
  readonly pool?: LinkPool;
}

/** Who is told what becomes of a link, beside the consumer of its bytes. */
export interface LinkWatcher {
  /** Control messages that are not the link's own: drain, rotate. */
  onControl?(message: ControlMessage): void;
  /** The carrier is lost; a new one may be given with `resume`, until `graceMs` from now. */
  onSuspended?(cause: CarrierLost): void;
  onResumed?(resumption: Resumption): void;
  /** The first message behind the welcome has come on the newest carrier: the peer knows of it. */
  onConfirmed?(): void;
  /** Nothing comes any more, and no carrier is taken. */
  onClosed?(): void;
}

export interface Resumption {
  /** How long there was no carrier, ms; 0: the old one was still alive. */
  readonly suspendedMs: number;
  /** Bytes sent once more. */
  readonly replayedBytes: number;
}

/** The grace was over before a new carrier came. */
export class LinkLost extends Error {
  override readonly name = "LinkLost";
  readonly graceMs: number;

  constructor(graceMs: number, cause: CarrierLost) {
    super(`no new connection came within ${graceMs / 1_000} s: ${cause.message}`, { cause });
    this.graceMs = graceMs;
  }
}

/** What a link asks of a carrier. */
export type LinkCarrier = Pick<
  Carrier,
  Exclude<keyof Transport, "room"> | "close" | "sendControl" | "onControl" | "probe"
>;

/** What the carrier has not taken stays under this while bytes are sent once more: pings go between. */
const REPLAY_AT_ONCE = 128 * 1024;
/** Acknowledgements that free less than 32 KiB, in one second: a peer says so after 20 ms at the soonest. */
const SMALL_ACK_BYTES = 32 * 1024;
const MAX_SMALL_ACKS_PER_SECOND = 100;

/** The present carrier, and how far the payload on it has come in the link. */
interface Leg {
  readonly carrier: LinkCarrier;
  /** The offset of the next byte that arrives on it. */
  arriving: number;
  /** A message has come on it. */
  confirmed: boolean;
  /** The carrier before it, until the peer is known to have this one. */
  previous: LinkCarrier | undefined;
}

type State =
  | { readonly state: "carried"; readonly leg: Leg }
  | {
      readonly state: "suspended";
      readonly sinceMs: number;
      readonly timer: NodeJS.Timeout;
      readonly cause: CarrierLost;
    }
  | { readonly state: "closed" };

/**
 * The ordered, reliable byte pipe between an agent and a server, which outlives its carriers (docs/link.md).
 *
 * ```
 *            carrier lost                     grace over
 *  carried ───────────────▶ suspended ──────────────────────▶ closed
 *   │ ▲  ▲                     │                                ▲
 *   │ │  └───── resume() ──────┘                                │
 *   │ └── resume(), the old carrier still alive                 │
 *   └── the peer's end(), a violation, destroy() ───────────────┘
 * ```
 */
export class Link implements Transport {
  readonly id: string;
  readonly #options: LinkOptions;
  readonly #pool: LinkPool;
  readonly #replay = new Replay();
  readonly #inFlight: InFlight;
  readonly #acks: Acks;
  #watcher: LinkWatcher = {};
  #consumer: TransportConsumer | undefined;
  #state: State;
  #remote: string;
  /** The present carrier has been given everything before this offset. */
  #sent = 0;
  #ending = false;
  #smallAcks = 0;
  #smallAckSecond = 0;

  /** `remote`: the other end's address, for logs. */
  constructor(id: string, remote: string, carrier: LinkCarrier, options: LinkOptions) {
    this.id = id;
    this.#remote = remote;
    this.#options = options;
    this.#pool = options.pool ?? UNBOUNDED_POOL;
    this.#inFlight = new InFlight(options.replayBytes);
    this.#acks = new Acks((received) => this.sendControl({ type: "ack", received }));
    this.#state = { state: "carried", leg: { carrier, arriving: 0, confirmed: true, previous: undefined } };
  }

  // ── what its owner sees ────────────────────────────────────────────────────────────────────────────────────────

  get remote(): string {
    return this.#remote;
  }

  get suspended(): boolean {
    return this.#state.state === "suspended";
  }

  get closed(): boolean {
    return this.#state.state === "closed";
  }

  /** Payload bytes that have arrived since the link began: what a resume names. */
  get received(): number {
    return this.#acks.received;
  }

  /** Bytes kept until the peer acknowledges them. */
  get unacknowledged(): number {
    return this.#replay.bytes;
  }

  /** One watcher, before `start`; control messages that came before it are told it next. */
  watch(watcher: LinkWatcher): void {
    this.#watcher = watcher;
    if (this.#state.state === "carried") this.#listen(this.#state.leg);
  }

  sendControl(message: ControlMessage): void {
    if (this.#state.state === "carried") this.#state.leg.carrier.sendControl(message);
  }

  /** There is doubt about the other end: without a byte within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    if (this.#state.state === "carried") this.#state.leg.carrier.probe(withinMs);
  }

  // ── the transport of a session ─────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    if (this.#state.state !== "carried") return;
    this.#listen(this.#state.leg);
    this.#startLeg(this.#state.leg);
  }

  get pendingBytes(): number {
    return this.#state.state === "carried" ? this.#state.leg.carrier.pendingBytes : 0;
  }

  room(): number {
    if (this.#state.state !== "carried" || this.#sent < this.#replay.end) return 0;
    const { bytes } = this.#replay;
    const room = this.#inFlight.bound - bytes;
    if (room <= 0) this.#inFlight.onLimited();
    // Held back by the pool is not held back by the bound, which must learn nothing from it.
    return this.#pool.isSpent ? Math.min(room, IN_FLIGHT_FLOOR - bytes) : room;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.#state.state === "closed") return;
    const behind = this.#sent < this.#replay.end;
    this.#replay.append(batch, byteLength);
    this.#pool.hold(byteLength);
    if (this.#state.state !== "carried" || behind) return;
    this.#sent = this.#replay.end;
    this.#inFlight.onSent(this.#sent, performance.now());
    this.#state.leg.carrier.write(batch, byteLength);
  }

  /** All that was written still arrives, on a later carrier if need be; then the link ends. */
  end(): void {
    this.#ending = true;
    if (this.#state.state === "carried" && this.#sent === this.#replay.end) this.#state.leg.carrier.end();
  }

  destroy(reason?: Error): void {
    if (this.#state.state === "carried") {
      const { carrier, previous } = this.#state.leg;
      carrier.destroy(reason);
      previous?.destroy(reason);
    }
    this.#close(reason);
  }

  // ── a new carrier ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Is it an offset at which sending can begin again? */
  canResumeAt(peerReceived: number): boolean {
    return this.#state.state !== "closed" && this.#replay.covers(peerReceived);
  }

  /**
   * Goes on over another carrier, whose peer has received all before `peerReceived` and sends from `named` on: what we
   * have told it. Throws `LinkRefused` for an offset that cannot be.
   */
  resume(carrier: LinkCarrier, remote: string, { peerReceived, named }: { peerReceived: number; named: number }): void {
    if (!this.canResumeAt(peerReceived)) {
      throw new LinkRefused({
        closeCode: CloseCode.badOffset,
        reason: `the link cannot go on at byte ${peerReceived}: ${this.#replay.acked} to ${this.#replay.end} are kept`,
      });
    }
    const before = this.#state;
    const previous = before.state === "carried" ? before.leg.carrier : undefined;
    if (before.state === "carried") before.leg.previous?.close(CloseCode.superseded, SUPERSEDED);
    if (before.state === "suspended") clearTimeout(before.timer);
    const leg: Leg = { carrier, arriving: named, confirmed: false, previous };
    this.#state = { state: "carried", leg };
    this.#remote = remote;
    this.#letGo(peerReceived);
    this.#sent = peerReceived;
    this.#inFlight.reset(peerReceived);
    const replayedBytes = this.#replay.bytes;
    this.#listen(leg);
    if (this.#consumer !== undefined) this.#startLeg(leg);
    this.#acks.release();
    this.#watcher.onResumed?.({
      suspendedMs: before.state === "suspended" ? performance.now() - before.sinceMs : 0,
      replayedBytes,
    });
    this.#replayMore(leg);
  }

  /** No word of how far we are until the resume that is under way has come to an end: it has named an offset. */
  holdAcks(): void {
    this.#acks.hold();
  }

  /** The resume has failed; the carrier held so far goes on. */
  releaseAcks(): void {
    this.#acks.release();
  }

  /** The first word on a new carrier: from it on the peer knows that we are here. */
  confirm(): void {
    this.#acks.now();
  }

  #replayMore(leg: Leg): void {
    const { carrier } = leg;
    while (this.#isPresent(leg) && this.#sent < this.#replay.end && carrier.pendingBytes < REPLAY_AT_ONCE) {
      const { buffers, byteLength } = this.#replay.read(this.#sent, REPLAY_AT_ONCE);
      this.#sent += byteLength;
      this.#inFlight.onSent(this.#sent, performance.now());
      carrier.write(buffers, byteLength);
    }
    if (!this.#isPresent(leg) || this.#sent < this.#replay.end) return;
    if (this.#ending) carrier.end();
    else this.#consumer?.onWritable();
  }

  // ── what comes from a carrier ──────────────────────────────────────────────────────────────────────────────────

  #isPresent(leg: Leg): boolean {
    return this.#state.state === "carried" && this.#state.leg === leg;
  }

  #listen(leg: Leg): void {
    leg.carrier.onControl = (message) => {
      if (!this.#isPresent(leg)) return;
      this.#confirmed(leg);
      if (message.type === "ack") this.#onAck(leg, message.received);
      else this.#watcher.onControl?.(message);
    };
  }

  #startLeg(leg: Leg): void {
    leg.carrier.start({
      onBytes: (piece) => this.#onPayload(leg, piece),
      onWritable: () => {
        if (!this.#isPresent(leg)) return;
        if (this.#sent < this.#replay.end) this.#replayMore(leg);
        else this.#consumer?.onWritable();
      },
      onClosed: (reason) => this.#onCarrierClosed(leg, reason),
    });
  }

  /** Payload on an older carrier is ignored: the peer sends it again on the present one. */
  #onPayload(leg: Leg, piece: Buffer): void {
    if (!this.#isPresent(leg)) return;
    this.#confirmed(leg);
    const had = this.#acks.received - leg.arriving;
    leg.arriving += piece.length;
    if (had >= piece.length) return;
    const news = had === 0 ? piece : piece.subarray(had);
    this.#acks.arrived(news.length);
    this.#consumer?.onBytes(news);
  }

  #confirmed(leg: Leg): void {
    if (leg.confirmed) return;
    leg.confirmed = true;
    leg.previous?.close(CloseCode.superseded, SUPERSEDED);
    leg.previous = undefined;
    this.#watcher.onConfirmed?.();
  }

  #onAck(leg: Leg, received: number): void {
    const freed = received - this.#replay.acked;
    if (freed <= 0) return;
    if (received > this.#sent) {
      this.#violated(leg, CloseCode.badOffset, "the peer acknowledged bytes that were not sent");
      return;
    }
    if (freed < SMALL_ACK_BYTES && this.#isFlood()) {
      this.#violated(leg, CloseCode.badControl, "the peer acknowledges too often");
      return;
    }
    this.#letGo(received);
    this.#inFlight.onAck(received, performance.now());
    if (this.#sent === this.#replay.end) this.#consumer?.onWritable();
  }

  /** The peer has all before `received`. */
  #letGo(received: number): void {
    this.#pool.hold(this.#replay.acked - received);
    this.#replay.acknowledge(received);
  }

  #isFlood(): boolean {
    const second = Math.floor(performance.now() / 1_000);
    if (second !== this.#smallAckSecond) {
      this.#smallAckSecond = second;
      this.#smallAcks = 0;
    }
    this.#smallAcks++;
    return this.#smallAcks > MAX_SMALL_ACKS_PER_SECOND;
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  #onCarrierClosed(leg: Leg, reason: Error | undefined): void {
    if (!this.#isPresent(leg)) return;
    // What was before it has been ignored since: its peer must not go on believing in it.
    leg.previous?.close(CloseCode.superseded, SUPERSEDED);
    if (reason instanceof CarrierLost && this.#options.graceMs > 0) this.#suspend(reason);
    else this.#close(reason);
  }

  #violated(leg: Leg, code: number, sentence: string): void {
    leg.carrier.close(code, sentence);
    leg.previous?.close(code, sentence);
    this.#close(new Error(sentence));
  }

  #suspend(cause: CarrierLost): void {
    const { graceMs } = this.#options;
    const timer = setTimeout(() => this.#close(new LinkLost(graceMs, cause)), graceMs);
    this.#state = { state: "suspended", sinceMs: performance.now(), timer, cause };
    this.#watcher.onSuspended?.(cause);
  }

  #close(reason: Error | undefined): void {
    const before = this.#state;
    if (before.state === "closed") return;
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "closed" };
    this.#acks.stop();
    this.#pool.hold(-this.#replay.bytes);
    this.#replay.clear();
    this.#consumer?.onClosed(reason);
    this.#watcher.onClosed?.();
  }
}

const SUPERSEDED = "another connection has taken the link over";
