import type { LinkPool } from "../limits/memory-account.ts";
import { CloseCode } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import { AckProgress } from "./ack-progress.ts";
import { Acks } from "./acks.ts";
import type { LinkCarrier } from "./carrier.ts";
import type { ControlMessage } from "./control.ts";
import { CarrierLost, LinkLost, type LinkPace, type LinkWatcher, PeerViolation, type ResumeAt } from "./link-events.ts";
import { Outgoing } from "./outgoing.ts";

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

/** A new carrier, and the address of the other end on it. */
type Successor = ResumeAt & { readonly carrier: LinkCarrier; readonly remote: string };

/** A new carrier on which nothing arrives for this time is given up, ms: both ends send there at once. */
const UNCONFIRMED_MS = 5_000;

type State =
  | { readonly state: "carried" }
  | { readonly state: "suspended"; readonly since: number; readonly timer: NodeJS.Timeout; readonly cause: CarrierLost }
  | { readonly state: "closed" };

/**
 * The ordered, reliable byte pipe between an agent and a server, or two servers, which outlives its carriers
 * (docs/link-protocol.md).
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
  /** Empty under inner TLS until its ends are authenticated: see `UntrustedLink`. */
  id: string;
  /** The address of the other end, for logs. */
  remote: string;
  /** Set by `UntrustedLink`. */
  protected graceMs: number;
  readonly #silenceMs: number;
  readonly #outgoing: Outgoing;
  readonly #progress: AckProgress;
  /** Our acknowledgements to the peer. */
  readonly acks: Acks;
  #watcher: LinkWatcher = {};
  #consumer: TransportConsumer | undefined;
  #state: State = { state: "carried" };
  /** The carrier before the present one, until the peer is known to use the present one. */
  #previous: LinkCarrier | undefined;
  /** The next carrier. It takes over with the peer's first message on it; until then the present one is used. */
  #successor: Successor | undefined;
  /** Number of bytes to skip on the present carrier: they were already received on an older one. */
  #toSkip = 0;

  constructor(id: string, remote: string, carrier: LinkCarrier, options: LinkOptions) {
    const { graceMs, silenceMs = 0, replayBytes, pool } = options;
    this.id = id;
    this.remote = remote;
    this.graceMs = graceMs;
    this.#silenceMs = silenceMs;
    this.#outgoing = new Outgoing(carrier, replayBytes, pool);
    this.#progress = new AckProgress(this);
    pool?.enter(this.#progress.place);
    this.acks = new Acks((received) => this.sendControl({ type: "ack", received }));
  }

  // ── for its owner ──────────────────────────────────────────────────────────────────────────────────────────────

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

  /** The measured pace of its line. */
  get pace(): LinkPace {
    return { ...this.#outgoing.pace, receivedPerSecond: this.acks.bytesPerSecond };
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
  get acknowledgedOffset(): number {
    return this.#outgoing.peerHas;
  }

  /** Sets the one watcher, before `start`. */
  watch(watcher: LinkWatcher): void {
    this.#watcher = watcher;
  }

  sendControl(message: ControlMessage): void {
    this.#carrier?.sendControl(message);
  }

  /** Asks the peer for a sign of life: without a byte within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    this.#carrier?.probe(withinMs);
  }

  // ── the transport of a session ─────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    if (this.#carrier !== undefined) this.#startCarrier(this.#carrier);
  }

  get pendingBytes(): number {
    return this.#carrier?.pendingBytes ?? 0;
  }

  room(): number {
    return this.#outgoing.room();
  }

  wholeRecords(at: number, most: number): number {
    return this.#carrier?.wholeRecords(at, most) ?? most;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    this.acks.beforeWrite(); // first, because to send an ack may end the link
    if (!this.closed) this.#outgoing.write(batch, byteLength);
  }

  /** All that was written is still delivered, on a later carrier if need be; then the link ends. */
  end(): void {
    this.#outgoing.end();
  }

  /** Ends the link now and tells the peer, which would wait for the next carrier. `publicReason`: see `InnerLink`. */
  destroy(cause?: Error, publicReason = cause?.message ?? "the link was ended", code: number = CloseCode.ended): void {
    this.#successor?.carrier.abandon(code, publicReason);
    this.#successor = undefined;
    this.#carrier?.abandon(code, publicReason);
    this.#previous?.abandon(code, publicReason);
    this.#previous = undefined;
    this.#close(cause);
  }

  // ── a new carrier ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Whether sending can begin again at this offset. */
  canResumeAt(peerReceived: number): boolean {
    return !this.closed && this.#outgoing.canRestart(peerReceived);
  }

  /** Continues over another carrier, from now on. Throws `LinkRefused` for an offset that cannot be resumed. */
  resume(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    this.#takeOver(this.#confirm({ ...at, carrier, remote }), false);
  }

  /**
   * Like `resume`, for the end that has answered a resume and does not know whether its answer arrives: a carrier that
   * is still alive stays in use until the first message arrives on the new one.
   */
  offer(carrier: LinkCarrier, remote: string, at: ResumeAt): void {
    if (this.#carrier === undefined) {
      this.resume(carrier, remote, at);
      return;
    }
    this.#successor = this.#confirm({ ...at, carrier, remote });
    this.acks.hold(); // the peer must keep what the answer has named
    this.#startCarrier(carrier);
  }

  /**
   * Accepts the successor if the link can continue there. It replaces an earlier offer, and the peer is asked for a
   * first byte.
   */
  #confirm(successor: Successor): Successor {
    if (!this.canResumeAt(successor.peerReceived)) throw this.#outgoing.refusal(successor.peerReceived);
    if (this.#successor !== undefined) supersede(this.#successor.carrier);
    successor.carrier.probe(UNCONFIRMED_MS);
    return successor;
  }

  /** The successor failed, and the present carrier stays in use. */
  #dropSuccessor(): void {
    this.#successor = undefined;
    this.acks.release();
  }

  /**
   * The successor becomes the present carrier. Bytes that its hello acknowledged stay buffered until an ack: see
   * `#onAck`.
   */
  #takeOver({ carrier, remote, peerReceived, named }: Successor, isStarted: boolean): void {
    this.#successor = undefined;
    const suspension = this.#state.state === "suspended" ? this.#state : undefined;
    clearTimeout(suspension?.timer);
    this.#state = { state: "carried" };
    this.#closePrevious();
    this.#previous = this.#carrier;
    this.remote = remote;
    this.#toSkip = this.received - named;
    this.#outgoing.restart(carrier, peerReceived);
    this.acks.release();
    const suspendedMs = suspension === undefined ? 0 : performance.now() - suspension.since;
    this.#watcher.onResumed?.({ suspendedMs, lost: suspension?.cause, replayedBytes: this.unacknowledged });
    if (!isStarted && this.#consumer !== undefined) this.#startCarrier(carrier);
    const reason = this.#progress.reasonToGiveUp();
    if (reason !== undefined) this.destroy(reason);
    else this.#replayMore();
  }

  /** Closes the carrier before the present one, so that the peer does not go on there. */
  #closePrevious(): void {
    if (this.#previous !== undefined) supersede(this.#previous);
    this.#previous = undefined;
  }

  #replayMore(): void {
    if (this.#outgoing.replayMore()) this.#consumer?.onWritable();
  }

  // ── what arrives ───────────────────────────────────────────────────────────────────────────────────────────────

  get #carrier(): LinkCarrier | undefined {
    return this.#outgoing.carrier;
  }

  get lastByteAt(): number {
    return this.#carrier?.lastByteAt ?? 0;
  }

  #startCarrier(carrier: LinkCarrier): void {
    carrier.onControl = (message) => {
      const counts = this.#counts(carrier);
      if (message.type === "ack" && counts) this.#onAck(message.received);
      // Also from an older carrier: the peer may not know yet that we have moved on, and does not repeat its request.
      else if (message.type !== "ack" && !this.closed) this.#watcher.onControl?.(message);
    };
    carrier.acknowledgedOffset = () =>
      this.#carrier === carrier && this.unacknowledged > 0 ? this.acknowledgedOffset : undefined;
    carrier.start({
      onBytes: (piece) => this.#onPayload(carrier, piece),
      onWritable: () => {
        if (this.#carrier !== carrier) return;
        if (this.#outgoing.isAllSent) this.#consumer?.onWritable();
        else this.#replayMore();
      },
      onClosed: (reason) => this.#onCarrierClosed(carrier, reason),
    });
  }

  /** Payload on an older carrier is ignored: the peer sends it again on the present one. */
  #onPayload(carrier: LinkCarrier, piece: Buffer): void {
    if (!this.#counts(carrier)) return;
    const bytes = this.#toSkip === 0 ? piece : piece.subarray(this.#toSkip);
    this.#toSkip -= piece.length - bytes.length;
    if (bytes.length === 0) return;
    this.acks.arrived(bytes.length);
    if (!this.closed) this.#consumer?.onBytes(bytes); // an ack to a peer that reads none may have ended the link
  }

  /** Whether a message on this carrier counts. The first one on the successor lets it take over. */
  #counts(carrier: LinkCarrier): boolean {
    if (this.#successor?.carrier === carrier) this.#takeOver(this.#successor, true);
    if (this.#carrier !== carrier) return false;
    this.#closePrevious();
    return true;
  }

  #onAck(received: number): void {
    if (received > this.#outgoing.everSent) {
      const violation = new PeerViolation("the peer acknowledged bytes that were not sent");
      this.destroy(violation, violation.message, CloseCode.badOffset);
      return;
    }
    // The peer acknowledges nothing here after its hello, unless it has given the new carrier up.
    if (this.#successor !== undefined && received > this.#successor.peerReceived) {
      supersede(this.#successor.carrier);
      this.#dropSuccessor();
    }
    if (this.#outgoing.acknowledge(received) && this.#outgoing.isAllSent) this.#consumer?.onWritable();
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  #onCarrierClosed(carrier: LinkCarrier, reason: Error | undefined): void {
    if (this.#successor?.carrier === carrier) this.#dropSuccessor();
    if (this.#carrier !== carrier) return;
    this.#closePrevious(); // its messages are ignored since the takeover
    const isLost = reason instanceof CarrierLost;
    // The peer closed cleanly, but has not acknowledged everything. It may have moved to the new carrier before our
    // last bytes arrived here. Then it waits for them, and for the end, on the new carrier.
    const isUndelivered = reason === undefined && this.#outgoing.isEndUnacknowledged;
    if (this.#successor !== undefined && (isLost || isUndelivered)) this.#takeOver(this.#successor, true);
    else if (isLost && this.graceMs > 0) this.#suspend(reason);
    else this.#close(reason);
  }

  #suspend(cause: CarrierLost): void {
    // If the connection fell silent, the peer may notice it later than we do, by as much as `silenceMs`.
    const graceMs = this.graceMs + (cause.lossCause === "silent" ? this.#silenceMs : 0);
    const timer = setTimeout(() => this.#close(new LinkLost(graceMs, cause)), graceMs);
    this.#progress.onCarrierLost(cause);
    this.#outgoing.carrier = undefined;
    this.#state = { state: "suspended", since: performance.now(), timer, cause };
    this.#watcher.onSuspended?.(cause);
  }

  #close(reason: Error | undefined): void {
    const before = this.#state;
    if (before.state === "closed") return;
    if (before.state === "suspended") clearTimeout(before.timer);
    this.#state = { state: "closed" };
    const successor = this.#successor?.carrier;
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

/** Closes a carrier in whose place another one carries the link. */
function supersede(carrier: LinkCarrier): void {
  carrier.close(CloseCode.superseded, "another connection has taken the link over");
}
