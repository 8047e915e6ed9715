import { CloseCode } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import type { ControlMessage } from "./control.ts";
import { Acks, CarrierCursor, type LinkCarrier, type ResumeAt, type Successor, supersede } from "./incoming.ts";
import { CarrierLost, LinkLost, type LinkWatcher, PeerViolation } from "./link-events.ts";
import { AckProgress } from "./liveness.ts";
import { type LinkPool, Outgoing } from "./outgoing.ts";

export interface LinkOptions {
  /** How long a link waits for a new carrier, ms; 0: it ends with its carrier. */
  readonly graceMs: number;
  /** How long the peer may take to notice that a carrier has fallen silent, ms. */
  readonly silenceMs?: number;
  /** Bytes kept for a new carrier, and so the most that may be unacknowledged. */
  readonly replayBytes: number;
  /** Absent: only `replayBytes` bounds what is kept. */
  readonly pool?: LinkPool;
}

type State =
  | { readonly state: "carried"; readonly cursor: CarrierCursor }
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
 *   │ └── resume(), or the first message on a carrier of offer() │
 *   └── the peer's end(), a violation, destroy() ───────────────┘
 * ```
 */
export class Link implements Transport {
  #id: string;
  #options: LinkOptions;
  readonly #outgoing: Outgoing;
  readonly #progress: AckProgress;
  /** What we acknowledge to the peer. */
  readonly acks: Acks;
  #watcher: LinkWatcher = {};
  #consumer: TransportConsumer | undefined;
  #state: State;
  #remote: string;
  #successor: Successor | undefined;
  #ending = false;

  /** `remote`: the address of the other end, for logs. */
  constructor(id: string, remote: string, carrier: LinkCarrier, options: LinkOptions) {
    this.#id = id;
    this.#remote = remote;
    this.#options = options;
    this.#outgoing = new Outgoing(options.replayBytes, options.pool);
    this.#progress = new AckProgress(this);
    options.pool?.enter(this.#progress.place);
    this.acks = new Acks((received) => this.sendControl({ type: "ack", received }));
    this.#state = { state: "carried", cursor: CarrierCursor.first(carrier) };
  }

  // ── for its owner ──────────────────────────────────────────────────────────────────────────────────────────────

  get id(): string {
    return this.#id;
  }

  /** Under inner TLS a link has an id, and may outlive its carrier, only once its ends are authenticated. */
  assignId(id: string, graceMs: number): void {
    this.#id = id;
    this.#options = { ...this.#options, graceMs };
  }

  get remote(): string {
    return this.#remote;
  }

  get suspended(): boolean {
    return this.#state.state === "suspended";
  }

  /** How its carrier was lost, while it is suspended. */
  get lost(): CarrierLost | undefined {
    return this.#state.state === "suspended" ? this.#state.cause : undefined;
  }

  get closed(): boolean {
    return this.#state.state === "closed";
  }

  /** Payload bytes that have arrived since the link began: what a resume names. */
  get received(): number {
    return this.acks.received;
  }

  /** Bytes kept until the peer acknowledges them. */
  get unacknowledged(): number {
    return this.#outgoing.unacknowledged;
  }

  /** The peer has acknowledged all bytes before this offset. */
  get acknowledged(): number {
    return this.#outgoing.resumable.from;
  }

  /** Sets the one watcher, before `start`. */
  watch(watcher: LinkWatcher): void {
    this.#watcher = watcher;
  }

  sendControl(message: ControlMessage): void {
    this.#cursor?.carrier.sendControl(message);
  }

  /** Asks the peer for a sign of life: without a byte within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    this.#cursor?.carrier.probe(withinMs);
  }

  // ── the transport of a session ─────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    if (this.#cursor === undefined) return;
    this.#listen(this.#cursor);
    this.#startCarrier(this.#cursor);
  }

  get pendingBytes(): number {
    return this.#cursor?.carrier.pendingBytes ?? 0;
  }

  room(): number {
    return this.#state.state === "carried" ? this.#outgoing.room() : 0;
  }

  wholeRecords(at: number, most: number): number {
    return this.#cursor?.carrier.wholeRecords(at, most) ?? most;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    this.acks.ride(); // first, because to send an ack may end the link
    if (this.#state.state === "closed") return;
    const goesOut = this.#state.state === "carried" && this.#outgoing.isAllSent;
    this.#outgoing.append(batch, byteLength);
    if (this.#state.state !== "carried" || !goesOut) return;
    this.#outgoing.advance(byteLength);
    this.#state.cursor.carrier.write(batch, byteLength);
  }

  /** All that was written is still delivered, on a later carrier if need be; then the link ends. */
  end(): void {
    this.#ending = true;
    if (this.#outgoing.isAllSent) this.#cursor?.carrier.end();
  }

  /** Ends the link now and tells the peer, which would wait for the next carrier. `publicReason`: see `InnerLink`. */
  destroy(reason?: Error, publicReason = reason?.message): void {
    this.#abandon(CloseCode.ended, publicReason ?? "the link was ended");
    this.#close(reason);
  }

  // ── a new carrier ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Whether sending can begin again at this offset. */
  canResumeAt(peerReceived: number): boolean {
    return this.#state.state !== "closed" && this.#outgoing.canRestart(peerReceived);
  }

  /** Goes on over another carrier, from now on. Throws `LinkRefused` for an offset that cannot be resumed. */
  resume(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    const { peerReceived } = at;
    if (!this.canResumeAt(peerReceived)) throw this.#outgoing.refusal(peerReceived);
    const hopeless = this.#progress.hopeless(peerReceived, this.lost);
    const cursor = CarrierCursor.resumed(carrier, at);
    this.#carry({ cursor, remote, peerReceived });
    this.#listen(cursor);
    if (this.#consumer !== undefined) this.#startCarrier(cursor);
    if (hopeless !== undefined) this.destroy(hopeless);
    else this.#replayMore(cursor);
  }

  /**
   * As `resume`, for the end that has answered a resume and does not know whether its answer arrives: a carrier that is
   * still alive goes on until the first message arrives on the new one.
   */
  offer(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    if (this.#state.state !== "carried") {
      this.resume(carrier, remote, at);
      return;
    }
    if (!this.canResumeAt(at.peerReceived)) throw this.#outgoing.refusal(at.peerReceived);
    if (this.#successor !== undefined) supersede(this.#successor.cursor.carrier);
    const cursor = CarrierCursor.resumed(carrier, at);
    this.#successor = { cursor, remote, peerReceived: at.peerReceived };
    this.acks.hold(); // the peer must keep what the answer has named
    this.#listen(cursor);
    this.#startCarrier(cursor);
  }

  /** The successor takes over. Bytes that its hello acknowledged stay buffered until an ack: see `#onAck`. */
  #commit(successor: Successor): void {
    this.#successor = undefined;
    this.#carry(successor);
    this.#replayMore(successor.cursor);
  }

  /** The successor failed, and the present carrier goes on. */
  #dropSuccessor(): void {
    this.#successor = undefined;
    this.acks.release();
  }

  #carry({ cursor, remote, peerReceived }: Successor): void {
    const { lost } = this;
    const before = this.#state;
    if (before.state === "carried") cursor.follow(before.cursor);
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "carried", cursor };
    this.#remote = remote;
    this.#outgoing.restart(peerReceived);
    const replayedBytes = this.#outgoing.unacknowledged;
    this.acks.release();
    const suspendedMs = before.state === "suspended" ? performance.now() - before.sinceMs : 0;
    this.#watcher.onResumed?.({ suspendedMs, lost, replayedBytes });
  }

  #replayMore(cursor: CarrierCursor): void {
    this.#outgoing.replayOn(cursor.carrier, () => this.#cursor === cursor);
    if (this.#cursor !== cursor || !this.#outgoing.isAllSent) return;
    if (this.#ending) cursor.carrier.end();
    else this.#consumer?.onWritable();
  }

  // ── what arrives ───────────────────────────────────────────────────────────────────────────────────────────────

  /** The present carrier. */
  get #cursor(): CarrierCursor | undefined {
    return this.#state.state === "carried" ? this.#state.cursor : undefined;
  }

  #listen(cursor: CarrierCursor): void {
    cursor.carrier.onControl = (message) => {
      const counts = this.#counts(cursor);
      if (message.type === "ack" && counts) this.#onAck(message.received);
      // Also from an older carrier: the peer may not know yet that we have moved on, and does not repeat its request.
      else if (message.type !== "ack" && !this.closed) this.#watcher.onControl?.(message);
    };
  }

  #startCarrier(cursor: CarrierCursor): void {
    const { carrier } = cursor;
    carrier.acknowledged = () => (this.#cursor === cursor && this.unacknowledged > 0 ? this.acknowledged : undefined);
    carrier.start({
      onBytes: (piece) => this.#onPayload(cursor, piece),
      onWritable: () => {
        if (this.#cursor !== cursor) return;
        if (this.#outgoing.isAllSent) this.#consumer?.onWritable();
        else this.#replayMore(cursor);
      },
      onClosed: (reason) => this.#onCarrierClosed(cursor, reason),
    });
  }

  /** Payload on an older carrier is ignored: the peer sends it again on the present one. */
  #onPayload(cursor: CarrierCursor, piece: Buffer): void {
    if (!this.#counts(cursor)) return;
    const bytes = cursor.newIn(piece, this.acks.received);
    if (bytes === undefined) return;
    this.acks.arrived(bytes.length);
    if (!this.closed) this.#consumer?.onBytes(bytes); // an ack to a peer that reads none may have ended the link
  }

  /** Whether a message on this carrier counts. The first one on the successor lets it take over. */
  #counts(cursor: CarrierCursor): boolean {
    if (this.#successor?.cursor === cursor) this.#commit(this.#successor);
    if (this.#cursor !== cursor) return false;
    cursor.closePrevious();
    return true;
  }

  #onAck(received: number): void {
    if (received > this.#outgoing.resumable.to) {
      const sentence = "the peer acknowledged bytes that were not sent";
      this.#abandon(CloseCode.badOffset, sentence);
      this.#close(new PeerViolation(sentence));
      return;
    }
    // The peer acknowledges nothing here after its hello, unless it has given the new carrier up.
    if (this.#successor !== undefined && received > this.#successor.peerReceived) {
      supersede(this.#successor.cursor.carrier);
      this.#dropSuccessor();
    }
    if (this.#outgoing.acknowledge(received) && this.#outgoing.isAllSent) this.#consumer?.onWritable();
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  #onCarrierClosed(cursor: CarrierCursor, reason: Error | undefined): void {
    if (this.#successor?.cursor === cursor) this.#dropSuccessor();
    if (this.#cursor !== cursor) return;
    cursor.closePrevious(); // its messages are ignored since the takeover
    const isLost = reason instanceof CarrierLost;
    // The peer closed in order, but has not acknowledged everything. It may have moved to the new carrier before our
    // last bytes arrived here. Then it waits for them, and for the end, on the new carrier.
    const isOwed = reason === undefined && this.#ending && this.#outgoing.unacknowledged > 0;
    if (this.#successor !== undefined && (isLost || isOwed)) this.#commit(this.#successor);
    else if (isLost && this.#options.graceMs > 0) this.#suspend(reason);
    else this.#close(reason);
  }

  /** Tells the peer on every carrier that the link is over. */
  #abandon(code: number, sentence: string): void {
    this.#successor?.cursor.carrier.abandon(code, sentence);
    this.#successor = undefined;
    this.#cursor?.abandon(code, sentence);
  }

  #suspend(cause: CarrierLost): void {
    // If the connection fell silent, the peer may notice it later than we do, by as much as `silenceMs`.
    const graceMs = this.#options.graceMs + (cause.lossCause === "silent" ? (this.#options.silenceMs ?? 0) : 0);
    const timer = setTimeout(() => this.#close(new LinkLost(graceMs, cause)), graceMs);
    this.#progress.onCarrierLost();
    this.#state = { state: "suspended", sinceMs: performance.now(), timer, cause };
    this.#watcher.onSuspended?.(cause);
  }

  #close(reason: Error | undefined): void {
    const before = this.#state;
    if (before.state === "closed") return;
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "closed" };
    const successor = this.#successor?.cursor.carrier;
    this.#successor = undefined;
    // The peer may use the successor already, and would look for the link.
    if (reason === undefined) successor?.end();
    else successor?.abandon(CloseCode.ended, reason.message);
    this.acks.stop();
    this.#progress.stop();
    this.#outgoing.clear();
    this.#consumer?.onClosed(reason);
    this.#watcher.onClosed?.();
  }
}
