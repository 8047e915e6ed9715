import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import { Unacknowledged } from "./ack-progress.ts";
import { Acks } from "./acks.ts";
import { AT_FIRST, Leg, type LinkCarrier, type ResumeAt, SUPERSEDED, type Successor } from "./carrier-cursor.ts";
import { CarrierLost, PeerViolation } from "./carrier-end.ts";
import type { ControlMessage } from "./control.ts";
import { type LinkPool, Outgoing } from "./outgoing.ts";

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
  /** How the old one was lost; `undefined`: it was still alive. */
  readonly lost: CarrierLost | undefined;
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

/**
 * So many carriers in a row that are lost before the peer has more of what waits for it: what we send is what they are cut
 * for, by a box that does not like it, and will be sent first on the next one, too.
 */
const MOST_FRUITLESS = 8;
/** What the carrier has not taken stays under this while bytes are sent once more: pings go between. */
const REPLAY_AT_ONCE = 128 * 1024;
/** A new carrier on which nothing comes for so long will not carry, ms: both ends answer there at once. */
const UNCONFIRMED_MS = 5_000;

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
 * The ordered, reliable byte pipe between an agent and a server, which outlives its carriers (docs/link-protocol.md).
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
  #id: string;
  #options: LinkOptions;
  readonly #outgoing: Outgoing;
  readonly #unacknowledged: Unacknowledged;
  readonly #acks: Acks;
  #watcher: LinkWatcher = {};
  #consumer: TransportConsumer | undefined;
  #state: State;
  #remote: string;
  #successor: Successor | undefined;
  #ending = false;
  /** Carriers in a row on which the peer got nothing more, and what it had then. */
  #fruitless = 0;
  #peerHadAtLoss = -1;

  /** `remote`: the other end's address, for logs. */
  constructor(id: string, remote: string, carrier: LinkCarrier, options: LinkOptions) {
    this.#id = id;
    this.#remote = remote;
    this.#options = options;
    this.#outgoing = new Outgoing(options.replayBytes, options.pool);
    this.#unacknowledged = new Unacknowledged(this.#watched());
    options.pool?.enter(this.#unacknowledged.place);
    this.#acks = new Acks((received) => this.sendControl({ type: "ack", received }));
    this.#state = { state: "carried", leg: new Leg(carrier, AT_FIRST) };
  }

  // ── what its owner sees ────────────────────────────────────────────────────────────────────────────────────────

  get id(): string {
    return this.#id;
  }

  #watched() {
    const link = this;
    return {
      get isCarried() {
        return link.#state.state === "carried";
      },
      get bytes() {
        return link.#outgoing.unacknowledged;
      },
      get acked() {
        return link.#outgoing.resumable.from;
      },
      end: (sentence: string) => link.destroy(new PeerViolation(sentence)),
    };
  }

  /** Under inner TLS a link has its name, and may outlive its carrier, only when its ends know each other. */
  settle(id: string, graceMs: number): void {
    this.#id = id;
    this.#options = { ...this.#options, graceMs };
  }

  get remote(): string {
    return this.#remote;
  }

  get suspended(): boolean {
    return this.#state.state === "suspended";
  }

  /** How its carrier was lost, while it waits for the next one. */
  get lost(): CarrierLost | undefined {
    return this.#state.state === "suspended" ? this.#state.cause : undefined;
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
    return this.#outgoing.unacknowledged;
  }

  /** One watcher, before `start`: from then on it is told, also of control messages that came earlier. */
  watch(watcher: LinkWatcher): void {
    this.#watcher = watcher;
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
    return this.#state.state === "carried" ? this.#outgoing.room() : 0;
  }

  wholeRecords(at: number, most: number): number {
    return this.#state.state === "carried" ? this.#state.leg.carrier.wholeRecords(at, most) : most;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    this.#acks.ride(); // first: to write an ack may end the link
    if (this.#state.state === "closed") return;
    const goesOut = this.#state.state === "carried" && this.#outgoing.isAllSent;
    this.#outgoing.append(batch, byteLength);
    if (this.#state.state !== "carried" || !goesOut) return;
    this.#outgoing.advance(byteLength);
    this.#state.leg.carrier.write(batch, byteLength);
  }

  /** All that was written still arrives, on a later carrier if need be; then the link ends. */
  end(): void {
    this.#ending = true;
    if (this.#state.state === "carried" && this.#outgoing.isAllSent) this.#state.leg.carrier.end();
  }

  /** The peer is told, or it would wait for the next carrier; `told`: what, where somebody in between could read it. */
  destroy(reason?: Error, told = reason?.message): void {
    this.#abandon(CloseCode.ended, told ?? "the link was ended");
    this.#close(reason);
  }

  // ── a new carrier ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Is it an offset at which sending can begin again? */
  canResumeAt(peerReceived: number): boolean {
    const { from, to } = this.#outgoing.resumable;
    return this.#state.state !== "closed" && peerReceived >= from && peerReceived <= to;
  }

  /** Goes on over another carrier, from now on. Throws `LinkRefused` for an offset that cannot be. */
  resume(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    const { peerReceived } = at;
    this.#mustResumeAt(peerReceived);
    const isHopeless = this.#fruitless >= MOST_FRUITLESS && peerReceived === this.#peerHadAtLoss;
    const cause = this.lost;
    const leg = new Leg(carrier, at);
    carrier.probe(UNCONFIRMED_MS);
    this.#carry({ leg, remote, peerReceived });
    this.#listen(leg);
    if (this.#consumer !== undefined) this.#startLeg(leg);
    if (isHopeless) this.destroy(hopeless(cause));
    else this.#replayMore(leg);
  }

  /**
   * The same for the end that has welcomed a carrier and does not know whether its welcome arrives: a carrier that still
   * lives goes on until the first message comes on the new one.
   */
  offer(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    if (this.#state.state !== "carried") {
      this.resume(carrier, remote, at);
      return;
    }
    this.#mustResumeAt(at.peerReceived);
    this.#successor?.leg.carrier.close(CloseCode.superseded, SUPERSEDED);
    const leg = new Leg(carrier, at);
    carrier.probe(UNCONFIRMED_MS);
    this.#successor = { leg, remote, peerReceived: at.peerReceived };
    this.#acks.hold(); // what the welcome has named must stay what the peer still keeps
    this.#listen(leg);
    this.#startLeg(leg);
  }

  #mustResumeAt(peerReceived: number): void {
    if (this.canResumeAt(peerReceived)) return;
    const { from, to } = this.#outgoing.resumable;
    throw new LinkRefused({
      closeCode: CloseCode.badOffset,
      reason: `the link cannot go on at byte ${peerReceived}: ${from} to ${to} are kept`,
    });
  }

  /** The successor takes over. What its hello named is kept still: see `#onAck`. */
  #commit(successor: Successor): void {
    this.#successor = undefined;
    this.#carry(successor);
    this.#replayMore(successor.leg);
  }

  /** The successor comes to nothing: the present carrier goes on. */
  #dropSuccessor(): void {
    this.#successor = undefined;
    this.#acks.release();
  }

  #carry({ leg, remote, peerReceived }: Successor): void {
    const { lost } = this;
    const before = this.#state;
    if (before.state === "carried") leg.follow(before.leg);
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "carried", leg };
    this.#remote = remote;
    this.#outgoing.restart(peerReceived);
    const replayedBytes = this.#outgoing.unacknowledged;
    this.#acks.release();
    this.#watcher.onResumed?.({
      suspendedMs: before.state === "suspended" ? performance.now() - before.sinceMs : 0,
      lost,
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
    while (this.#isPresent(leg) && !this.#outgoing.isAllSent && carrier.pendingBytes < REPLAY_AT_ONCE) {
      const { buffers, byteLength } = this.#outgoing.next(REPLAY_AT_ONCE);
      carrier.write(buffers, byteLength);
    }
    this.#outgoing.letGo();
    if (!this.#isPresent(leg) || !this.#outgoing.isAllSent) return;
    if (this.#ending) carrier.end();
    else this.#consumer?.onWritable();
  }

  // ── what comes from a carrier ──────────────────────────────────────────────────────────────────────────────────

  #isPresent(leg: Leg): boolean {
    return this.#state.state === "carried" && this.#state.leg === leg;
  }

  #listen(leg: Leg): void {
    leg.carrier.onControl = (message) => {
      const counts = this.#hasWord(leg);
      if (message.type !== "ack") this.#tell(message);
      else if (counts) this.#onAck(message.received);
    };
  }

  #startLeg(leg: Leg): void {
    leg.carrier.acknowledged = () => {
      if (!this.#isPresent(leg) || this.#outgoing.unacknowledged === 0) return undefined;
      return this.#outgoing.resumable.from;
    };
    leg.carrier.start({
      onBytes: (piece) => this.#onPayload(leg, piece),
      onWritable: () => {
        if (!this.#isPresent(leg)) return;
        if (this.#outgoing.isAllSent) this.#consumer?.onWritable();
        else this.#replayMore(leg);
      },
      onClosed: (reason) => this.#onCarrierClosed(leg, reason),
    });
  }

  /** Also from an older carrier: what a peer asks for that does not know yet that we have moved on is not said again. */
  #tell(message: ControlMessage): void {
    if (this.#state.state !== "closed") this.#watcher.onControl?.(message);
  }

  /** Payload on an older carrier is ignored: the peer sends it again on the present one. */
  #onPayload(leg: Leg, piece: Buffer): void {
    if (!this.#hasWord(leg)) return;
    const news = leg.newsIn(piece, this.#acks.received);
    if (news === undefined) return;
    this.#acks.arrived(news.length);
    // A peer that reads no acks is found out while one is written.
    if (!this.closed) this.#consumer?.onBytes(news);
  }

  /** A message has come on this carrier: does it count? A successor takes over by it. */
  #hasWord(leg: Leg): boolean {
    if (this.#successor?.leg === leg) this.#commit(this.#successor);
    if (!this.#isPresent(leg)) return false;
    leg.hear();
    return true;
  }

  #onAck(received: number): void {
    if (received > this.#outgoing.resumable.to) {
      this.#violated(CloseCode.badOffset, "the peer acknowledged bytes that were not sent");
      return;
    }
    // From its hello on the peer acknowledges nothing more here, unless it has given the new carrier up.
    if (this.#successor !== undefined && received > this.#successor.peerReceived) {
      this.#successor.leg.carrier.close(CloseCode.superseded, SUPERSEDED);
      this.#dropSuccessor();
    }
    if (this.#outgoing.acknowledge(received) && this.#outgoing.isAllSent) this.#consumer?.onWritable();
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  #onCarrierClosed(leg: Leg, reason: Error | undefined): void {
    if (this.#successor?.leg === leg) this.#dropSuccessor();
    if (!this.#isPresent(leg)) return;
    leg.closePrevious(); // it has been ignored since
    if (this.#successor !== undefined && (reason instanceof CarrierLost || this.#isOwed(reason)))
      this.#commit(this.#successor);
    else if (reason instanceof CarrierLost && this.#options.graceMs > 0) this.#suspend(reason);
    else this.#close(reason);
  }

  /**
   * Our own end was answered, and the peer has not said that it has everything. It may have moved on before: then it
   * has ignored what came here, and waits for the rest, and for the end, on the new carrier.
   */
  #isOwed(reason: Error | undefined): boolean {
    return reason === undefined && this.#ending && this.#outgoing.unacknowledged > 0;
  }

  #violated(code: number, sentence: string): void {
    this.#abandon(code, sentence);
    this.#close(new PeerViolation(sentence));
  }

  /** Says to whoever listens that nothing comes any more. */
  #abandon(code: number, sentence: string): void {
    this.#successor?.leg.carrier.abandon(code, sentence);
    this.#successor = undefined;
    if (this.#state.state === "carried") this.#state.leg.abandon(code, sentence);
  }

  #suspend(cause: CarrierLost): void {
    // A peer that hears no end of a connection that fell silent may believe in it so much longer.
    const graceMs = this.#options.graceMs + (cause.lossCause === "silent" ? (this.#options.silenceMs ?? 0) : 0);
    const timer = setTimeout(() => this.#close(new LinkLost(graceMs, cause)), graceMs);
    this.#countFruitless();
    this.#state = { state: "suspended", sinceMs: performance.now(), timer, cause };
    this.#watcher.onSuspended?.(cause);
  }

  #countFruitless(): void {
    const peerHas = this.#outgoing.resumable.from;
    const isFruitless = this.#outgoing.unacknowledged > 0 && peerHas === this.#peerHadAtLoss;
    this.#fruitless = isFruitless ? this.#fruitless + 1 : 0;
    this.#peerHadAtLoss = peerHas;
  }

  #close(reason: Error | undefined): void {
    const before = this.#state;
    if (before.state === "closed") return;
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "closed" };
    this.#endSuccessor(reason);
    this.#acks.stop();
    this.#unacknowledged.stop();
    this.#outgoing.clear();
    this.#consumer?.onClosed(reason);
    this.#watcher.onClosed?.();
  }

  /** Its peer may have moved on to it already, and would look for the link. */
  #endSuccessor(reason: Error | undefined): void {
    const carrier = this.#successor?.leg.carrier;
    this.#successor = undefined;
    if (reason === undefined) carrier?.end();
    else carrier?.abandon(CloseCode.ended, reason.message);
  }
}

function hopeless(cause: CarrierLost | undefined): Error {
  const last = cause === undefined ? "" : `: ${cause.message}`;
  return new Error(`${MOST_FRUITLESS} connections in a row were cut over what was to be sent again${last}`, { cause });
}
