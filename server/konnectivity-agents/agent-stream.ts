import { Duplex } from "node:stream";
import { compact } from "../../shared/basics/bytes.ts";
import { QueueNode } from "../../shared/basics/collections.ts";
import { DESTROYED, memoryNeeded, type Reclaimable } from "../../shared/limits/memory-account.ts";
import { streamReset } from "../../shared/yamux/errors.ts";
import { ReadBuffer } from "../../shared/yamux/flow-control.ts";
import type { SessionMemory } from "../../shared/yamux/session-memory.ts";

type Done = (error?: Error | null) => void;

/** High-water mark of the writable side, bytes. */
const WRITE_HIGH_WATER_MARK = 64 * 1024;
/** Longer writes are sent in parts, one after the other: so other connections of the agent have their turn, bytes. */
const MAX_PAYLOAD = 32 * 1024;

/** The parts of a tunnel that a stream uses. */
export interface StreamTunnel {
  readonly memory: SessionMemory;
  /** `done` is called when the agent has taken the bytes as far as HTTP/2 goes. */
  send(connectID: bigint, bytes: Buffer, done: Done): void;
  /** Asks the agent to close its connection to the target. */
  requestClose(connectID: bigint): void;
  /** The stream is destroyed. */
  forget(stream: AgentStream): void;
}

/**
 * One connection of a konnectivity-agent to a target as a Duplex. The protocol has no window for it: whatever the agent
 * has read from the target arrives, and what the reader does not take is held here. It has no half-close either:
 *
 * ```
 *  open ── end() or destroy(): CLOSE_REQ ──▶ closing ── CLOSE_RSP ──▶ over
 *    └──────────── CLOSE_RSP: the target has ended ──────────────────▶
 * ```
 *
 * The agent closes both directions in either case, as it does with Konnectivity's server: after `end()` only what the
 * target has sent so far still comes, and after the target's end further writes are dropped.
 */
export class AgentStream extends Duplex implements Reclaimable {
  readonly connectID: bigint;
  /** Node of this stream in the account that pays for it. */
  readonly charged = new QueueNode<Reclaimable>(this);
  readonly #tunnel: StreamTunnel;
  readonly #incoming: ReadBuffer;
  #state: "open" | "closing" | "over" = "open";
  /** `_read` was called and not answered yet. */
  #isReadPending = false;

  constructor(connectID: bigint, tunnel: StreamTunnel) {
    // Bytes that arrive are kept in `ReadBuffer`, which counts them.
    super({ readableHighWaterMark: 0, writableHighWaterMark: WRITE_HIGH_WATER_MARK });
    this.connectID = connectID;
    this.#tunnel = tunnel;
    this.#incoming = new ReadBuffer(tunnel.memory.ofPool, () => performance.now());
    this.on("error", ignore); // between answer and splice there is no other listener
  }

  /** Bytes received that the reader has not taken. */
  get held(): number {
    return this.#incoming.unread;
  }

  get lastProgressAt(): number {
    return this.#incoming.lastProgressAt;
  }

  get longestPauseMs(): number {
    return this.#incoming.longestPauseMs;
  }

  /** Ends it, because the memory that it holds is needed. */
  evict(sentence?: string): void {
    this.destroy(memoryNeeded(sentence));
  }

  // ── the writer's side ──────────────────────────────────────────────────────────────────────────────────────────

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#send(chunk, done);
  }

  #send(bytes: Buffer, done: Done): void {
    if (this.#state !== "open") {
      done(); // the target has ended, or CLOSE_REQ was sent: nothing more would be taken
      return;
    }
    const rest = bytes.subarray(MAX_PAYLOAD);
    const onSent: Done = (error) => (error || rest.length === 0 ? done(error) : this.#send(rest, done));
    this.#tunnel.send(this.connectID, bytes.subarray(0, MAX_PAYLOAD), onSent);
  }

  override _final(done: Done): void {
    this.#close();
    done();
  }

  #close(): void {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#tunnel.requestClose(this.connectID);
  }

  // ── the reader's side ──────────────────────────────────────────────────────────────────────────────────────────

  override _read(): void {
    this.#settleRead(); // from Node.js 26.12 on a flowing reader takes buffered bytes without `read`
    this.#isReadPending = true;
    this.#giveNext();
  }

  #giveNext(): void {
    const piece = this.#incoming.dequeue();
    if (piece !== undefined) this.#give(piece);
    if (this.#state === "over" && this.#incoming.queued === 0) this.push(null);
  }

  #give(piece: Buffer): void {
    this.#isReadPending = false;
    this.push(piece);
  }

  override read(size?: number): unknown {
    const chunk = super.read(size);
    if (chunk === null) return null;
    this.#settleRead();
    if (this.readableFlowing !== true && this.readableLength === 0 && this.#incoming.queued > 0) this.#giveNext();
    return chunk;
  }

  /** Counts what the reader has taken since the last call. */
  #settleRead(): void {
    this.#incoming.onRead(this.readableLength);
  }

  override unshift(chunk: Buffer, encoding?: BufferEncoding): void {
    super.unshift(chunk, encoding);
    if (!this.destroyed) this.#incoming.onUnshift(this.readableLength);
  }

  // ── what the tunnel has received ───────────────────────────────────────────────────────────────────────────────

  /** Bytes of the target, a view of what they came in. */
  onData(piece: Buffer): void {
    if (this.destroyed || piece.length === 0) return;
    this.#incoming.onReceived(piece.length);
    if (this.#takesAtOnce) this.#give(piece);
    else if (!this.#isReadPending && this.readableLength + this.#incoming.queued > 0) this.#incoming.enqueue(piece);
    else this.#give(compact(piece));
    this.#settleRead();
    this.#incoming.count();
  }

  /** The reader is flowing and nothing waits in front of the piece. */
  get #takesAtOnce(): boolean {
    return this.readableFlowing === true && this.readableLength === 0 && this.#incoming.queued === 0;
  }

  /** The agent has closed its connection to the target, with this error or none. */
  onClosed(error: string): void {
    const wasOpen = this.#state === "open";
    this.#state = "over";
    if (wasOpen && error !== "") this.destroy(streamReset(error));
    else if (!this.destroyed && this.#incoming.queued === 0) this.push(null);
  }

  /** The tunnel is lost. */
  onLost(error: Error): void {
    this.#state = "over";
    this.destroy(error);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#incoming.clear();
    this.#close();
    this.charged.leave();
    this.#tunnel.forget(this);
    this.emit(DESTROYED);
    done(error);
  }
}

function ignore(): void {}
