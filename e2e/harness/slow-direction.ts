import type { Socket } from "node:net";

/** One direction of a slow line. */
interface SlowDirectionOptions {
  readonly bytesPerSecond: number;
  /** Bytes that may wait in front of the wire; when the queue is full, senders wait. */
  readonly queueBytes: number;
  /** From the wire's beginning to its end. */
  readonly delayMs: number;
}

/** Bytes of TCP in an Ethernet frame: after this number of bytes another sender has the wire. */
const PACKET_BYTES = 1448;
/** The most that one read of a socket brings. */
const READ_BYTES = 65_536;

interface Packet {
  /** Bytes, or the end of them. */
  readonly content: Buffer | "fin" | "rst";
  readonly to: Socket;
  /** When its last byte is on the wire, and when it is at the other end. */
  leavesMs: number;
  arrivesMs: number;
}

/**
 * A queue of bounded length in front of a wire with a rate, and a wire with a length: what makes a modem slow. First
 * in, first out, whoever it belongs to, so one sender that fills the queue delays everybody by `queueBytes /
 * bytesPerSecond`.
 *
 * Where a router drops, this lets the sender wait: its TCP stalls, as congestion control makes it stall. Bytes that the
 * kernels hold for a socket that is not read are not part of the queue.
 */
export class SlowDirection {
  readonly #options: SlowDirectionOptions;
  readonly #count: (bytes: number) => void;
  /** Sources and what takes their bytes; who was let in last is at the end. */
  readonly #ways = new Map<Socket, Socket>();
  /** Waiting, then on the wire: the first `#onWire` have left. */
  #packets: Packet[] = [];
  #onWire = 0;
  #queued = 0;
  #freeMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #nextTurn: NodeJS.Immediate | undefined;
  #stopped = false;

  constructor(options: SlowDirectionOptions, count: (bytes: number) => void) {
    this.#options = options;
    this.#count = count;
  }

  /** Bytes that wait in front of the wire. */
  get queued(): number {
    return this.#queued;
  }

  join(from: Socket, to: Socket): void {
    this.#ways.set(from, to);
    from.on("data", (chunk: Buffer) => this.#addBytes(chunk, to));
    from.on("end", () => this.#add("fin", to));
    from.on("error", () => this.#add("rst", to));
    from.on("close", () => this.#ways.delete(from));
    to.on("drain", () => this.#holdSources());
  }

  /** Nothing arrives for this time, as while TCP waits to send a lost packet again; what waits comes later by it. */
  stall(ms: number): void {
    for (const packet of this.#packets) {
      packet.leavesMs += ms;
      packet.arrivesMs += ms;
    }
    this.#freeMs = Math.max(this.#freeMs, performance.now()) + ms;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#wait();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearImmediate(this.#nextTurn);
  }

  #addBytes(chunk: Buffer, to: Socket): void {
    for (let at = 0; at < chunk.length; at += PACKET_BYTES) this.#add(chunk.subarray(at, at + PACKET_BYTES), to);
    this.#holdSources();
  }

  #add(content: Packet["content"], to: Socket): void {
    const { bytesPerSecond, delayMs } = this.#options;
    const length = lengthOf(content);
    this.#freeMs = Math.max(this.#freeMs, performance.now()) + (length * 1000) / bytesPerSecond;
    this.#packets.push({ content, to, leavesMs: this.#freeMs, arrivesMs: this.#freeMs + delayMs });
    this.#queued += length;
    this.#wait();
  }

  /** Until the next packet leaves or arrives. */
  #wait(): void {
    if (this.#timer || this.#stopped) return;
    const dueMs = Math.min(this.#packets[this.#onWire]?.leavesMs ?? Infinity, this.#packets[0]?.arrivesMs ?? Infinity);
    if (dueMs === Infinity) return;
    this.#timer = setTimeout(this.#onDue, dueMs - performance.now());
  }

  readonly #onDue = (): void => {
    this.#timer = undefined;
    const now = performance.now();
    while (this.#onWire < this.#packets.length) {
      const packet = this.#packets[this.#onWire] as Packet;
      if (packet.leavesMs > now) break;
      this.#queued -= lengthOf(packet.content);
      this.#onWire++;
    }
    let arrived = 0;
    while (arrived < this.#onWire && (this.#packets[arrived] as Packet).arrivesMs <= now) {
      this.#deliver(this.#packets[arrived++] as Packet);
    }
    this.#packets.splice(0, arrived);
    this.#onWire -= arrived;
    this.#holdSources();
    this.#wait();
  };

  #deliver({ content, to }: Packet): void {
    if (to.destroyed) return;
    if (content === "fin") to.end();
    else if (content === "rst") to.resetAndDestroy();
    else {
      this.#count(content.length);
      to.write(content);
    }
  }

  /** Sources that wait longest go first, one at a time: the fastest reader would otherwise take all the room. */
  #holdSources(): void {
    if (this.#stopped) return;
    const full = this.#queued + READ_BYTES > this.#options.queueBytes;
    for (const [from, to] of this.#ways) {
      if (full || to.writableNeedDrain) from.pause();
    }
    if (full || this.#nextTurn) return;
    for (const [from, to] of this.#ways) {
      if (!from.isPaused() || to.writableNeedDrain) continue;
      this.#ways.delete(from);
      this.#ways.set(from, to);
      from.resume();
      this.#nextTurn = setImmediate(() => {
        this.#nextTurn = undefined;
        this.#holdSources();
      });
      return;
    }
  }
}

function lengthOf(content: Packet["content"]): number {
  return typeof content === "string" ? 0 : content.length;
}
