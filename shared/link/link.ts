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
  /** How long the peer may take to notice that a carrier has fallen silent, ms. */
  readonly silenceMs?: number;
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
  Exclude<keyof Transport, "room" | "destroy"> | "close" | "abandon" | "sendControl" | "onControl" | "probe"
>;

/** What the carrier has not taken stays under this while bytes are sent once more: pings go between. */
const REPLAY_AT_ONCE = 128 * 1024;
/** A new carrier on which nothing comes for so long will not carry, ms: its peer speaks as soon as it is welcomed. */
const UNCONFIRMED_MS = 5_000;

/** A carrier, and how far the payload on it has come in the link. */
interface Leg {
  readonly carrier: LinkCarrier;
  /** The offset of the next byte that arrives on it. */
  arriving: number;
  /** To be told of the first message on it; `undefined` from then on. */
  onFirstWord: (() => void) | undefined;
  /** The carrier before it, until the peer is known to have this one. */
  previous: LinkCarrier | undefined;
}

/** A carrier that is to take over when its peer is known to have it: until then the present one goes on. */
interface Candidate {
  readonly leg: Leg;
  readonly remote: string;
  readonly peerReceived: number;
}

/** Where a new carrier begins. */
export interface ResumeAt {
  /** What its peer has of the link: where we begin. */
  readonly peerReceived: number;
  /** What we have told the peer that we have: where it begins. */
  readonly named: number;
  /** The first message has come on this carrier: its peer has read our welcome. */
  onConfirmed?(): void;
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
 *   │ └── resume(), or the first word on a carrier of offer()   │
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
  /** Some carrier has: what the peer may have received, whichever it came on. */
  #everSent = 0;
  /** What the peer says it has received. */
  #peerHas = 0;
  #candidate: Candidate | undefined;
  #ending = false;

  /** `remote`: the other end's address, for logs. */
  constructor(id: string, remote: string, carrier: LinkCarrier, options: LinkOptions) {
    this.id = id;
    this.#remote = remote;
    this.#options = options;
    this.#pool = options.pool ?? UNBOUNDED_POOL;
    this.#inFlight = new InFlight(options.replayBytes);
    this.#acks = new Acks((received) => this.sendControl({ type: "ack", received }));
    this.#state = { state: "carried", leg: { carrier, arriving: 0, onFirstWord: undefined, previous: undefined } };
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
    this.#advance(byteLength);
    this.#state.leg.carrier.write(batch, byteLength);
  }

  /** All that was written still arrives, on a later carrier if need be; then the link ends. */
  end(): void {
    this.#ending = true;
    if (this.#state.state === "carried" && this.#sent === this.#replay.end) this.#state.leg.carrier.end();
  }

  /** The peer is told, or it would wait for the next carrier. */
  destroy(reason?: Error): void {
    this.#abandon(CloseCode.ended, reason?.message ?? "the link was ended");
    this.#close(reason);
  }

  // ── a new carrier ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Is it an offset at which sending can begin again? */
  canResumeAt(peerReceived: number): boolean {
    return this.#state.state !== "closed" && peerReceived >= this.#replay.acked && peerReceived <= this.#everSent;
  }

  /** Goes on over another carrier, from now on. Throws `LinkRefused` for an offset that cannot be. */
  resume(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    const { peerReceived } = at;
    this.#mustResumeAt(peerReceived);
    const leg = newLeg(carrier, at);
    this.#carry({ leg, remote, peerReceived });
    this.#listen(leg);
    if (this.#consumer !== undefined) this.#startLeg(leg);
    this.#replayMore(leg);
  }

  /**
   * The same for the end that has welcomed a carrier and does not know whether its welcome arrives: a carrier that still
   * lives goes on until the first message comes on the new one.
   */
  offer(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    carrier.probe(UNCONFIRMED_MS);
    if (this.#state.state !== "carried") {
      this.resume(carrier, remote, at);
      return;
    }
    this.#mustResumeAt(at.peerReceived);
    this.#candidate?.leg.carrier.close(CloseCode.superseded, SUPERSEDED);
    const leg = newLeg(carrier, at);
    this.#candidate = { leg, remote, peerReceived: at.peerReceived };
    this.#acks.hold(); // what the welcome has named must stay what the peer still keeps
    this.#listen(leg);
    this.#startLeg(leg);
  }

  #mustResumeAt(peerReceived: number): void {
    if (this.canResumeAt(peerReceived)) return;
    throw new LinkRefused({
      closeCode: CloseCode.badOffset,
      reason: `the link cannot go on at byte ${peerReceived}: ${this.#replay.acked} to ${this.#everSent} are kept`,
    });
  }

  /** The candidate takes over. */
  #commit(candidate: Candidate): void {
    this.#candidate = undefined;
    const { leg, peerReceived } = candidate;
    if (!this.canResumeAt(peerReceived)) {
      this.#violated(CloseCode.badOffset, "the peer acknowledged more than it said it had");
      leg.carrier.close(CloseCode.badOffset, "more was acknowledged than the hello named");
      return;
    }
    this.#carry(candidate);
    this.#replayMore(leg);
  }

  #carry({ leg, remote, peerReceived }: Candidate): void {
    const before = this.#state;
    if (before.state === "carried") {
      before.leg.previous?.close(CloseCode.superseded, SUPERSEDED);
      leg.previous = before.leg.carrier;
    }
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "carried", leg };
    this.#remote = remote;
    this.#peerHas = peerReceived;
    this.#sent = peerReceived;
    this.#letGo();
    this.#inFlight.reset(peerReceived);
    const replayedBytes = this.#replay.bytes;
    this.#acks.release();
    this.#watcher.onResumed?.({
      suspendedMs: before.state === "suspended" ? performance.now() - before.sinceMs : 0,
      replayedBytes,
    });
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
      this.#advance(byteLength);
      carrier.write(buffers, byteLength);
    }
    this.#letGo();
    if (!this.#isPresent(leg) || this.#sent < this.#replay.end) return;
    if (this.#ending) carrier.end();
    else this.#consumer?.onWritable();
  }

  /** So much more has been given to the present carrier. */
  #advance(byteLength: number): void {
    this.#sent += byteLength;
    if (this.#sent > this.#everSent) this.#everSent = this.#sent;
    this.#inFlight.onSent(this.#sent, performance.now());
  }

  // ── what comes from a carrier ──────────────────────────────────────────────────────────────────────────────────

  #isPresent(leg: Leg): boolean {
    return this.#state.state === "carried" && this.#state.leg === leg;
  }

  #listen(leg: Leg): void {
    leg.carrier.onControl = (message) => {
      if (!this.#hasWord(leg)) return;
      if (message.type === "ack") this.#onAck(message.received);
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
    if (!this.#hasWord(leg)) return;
    const had = this.#acks.received - leg.arriving;
    leg.arriving += piece.length;
    if (had >= piece.length) return;
    const news = had === 0 ? piece : piece.subarray(had);
    this.#acks.arrived(news.length);
    this.#consumer?.onBytes(news);
  }

  /** A message has come on this carrier: does it count? A candidate takes over by it. */
  #hasWord(leg: Leg): boolean {
    if (this.#candidate?.leg === leg) this.#commit(this.#candidate);
    if (!this.#isPresent(leg)) return false;
    const { onFirstWord } = leg;
    leg.onFirstWord = undefined;
    onFirstWord?.();
    leg.previous?.close(CloseCode.superseded, SUPERSEDED);
    leg.previous = undefined;
    return true;
  }

  #onAck(received: number): void {
    if (received > this.#everSent) {
      this.#violated(CloseCode.badOffset, "the peer acknowledged bytes that were not sent");
      return;
    }
    if (received <= this.#peerHas) return;
    this.#peerHas = received;
    this.#letGo();
    this.#inFlight.onAck(this.#replay.acked, performance.now());
    if (this.#sent === this.#replay.end) this.#consumer?.onWritable();
  }

  /**
   * What the peer has is not kept, but what it has from an older carrier only is still sent on the present one: there
   * every byte has its place.
   */
  #letGo(): void {
    const upTo = Math.min(this.#peerHas, this.#sent);
    if (upTo <= this.#replay.acked) return;
    this.#pool.hold(this.#replay.acked - upTo);
    this.#replay.acknowledge(upTo);
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  #onCarrierClosed(leg: Leg, reason: Error | undefined): void {
    if (this.#candidate?.leg === leg) {
      this.#candidate = undefined;
      this.#acks.release();
    }
    if (!this.#isPresent(leg)) return;
    // What was before it has been ignored since: its peer must not go on believing in it.
    leg.previous?.close(CloseCode.superseded, SUPERSEDED);
    if (!(reason instanceof CarrierLost)) this.#close(reason);
    else if (this.#candidate !== undefined) this.#commit(this.#candidate);
    else if (this.#options.graceMs > 0) this.#suspend(reason);
    else this.#close(reason);
  }

  #violated(code: number, sentence: string): void {
    this.#abandon(code, sentence);
    this.#close(new Error(sentence));
  }

  /** Says to whoever listens that nothing comes any more. */
  #abandon(code: number, sentence: string): void {
    this.#candidate?.leg.carrier.abandon(code, sentence);
    if (this.#state.state !== "carried") return;
    this.#state.leg.carrier.abandon(code, sentence);
    this.#state.leg.previous?.abandon(code, sentence);
  }

  #suspend(cause: CarrierLost): void {
    // A peer that hears no end of a connection that fell silent may believe in it so much longer.
    const graceMs = this.#options.graceMs + (cause.lossCause === "silent" ? (this.#options.silenceMs ?? 0) : 0);
    const timer = setTimeout(() => this.#close(new LinkLost(graceMs, cause)), graceMs);
    this.#state = { state: "suspended", sinceMs: performance.now(), timer, cause };
    this.#watcher.onSuspended?.(cause);
  }

  #close(reason: Error | undefined): void {
    const before = this.#state;
    if (before.state === "closed") return;
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "closed" };
    this.#candidate?.leg.carrier.close(CloseCode.superseded, SUPERSEDED);
    this.#candidate = undefined;
    this.#acks.stop();
    this.#pool.hold(-this.#replay.bytes);
    this.#replay.clear();
    this.#consumer?.onClosed(reason);
    this.#watcher.onClosed?.();
  }
}

function newLeg(carrier: LinkCarrier, { named, onConfirmed }: ResumeAt): Leg {
  return { carrier, arriving: named, onFirstWord: onConfirmed, previous: undefined };
}

const SUPERSEDED = "another connection has taken the link over";
