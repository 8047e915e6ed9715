import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { wholeRecords } from "../basics/bytes.ts";
import { deferred } from "../basics/promises.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import type { LinkCarrier } from "./carrier-cursor.ts";
import { encodeInner, type InnerHello, type InnerReply, splitInner } from "./control.ts";
import { Link } from "./link.ts";
import type { LinkOptions, LinkWatcher } from "./link-options.ts";

/** A link, which is told apart why it ends and what to say of that outside. */
export interface InnerLink extends Transport {
  destroy(reason?: Error, told?: string): void;
}

/** Many frames of a few bytes each: one copy costs less than handing each to TLS apart. */
const SMALL_BATCH_BYTES = 8 * 1024;

/** Somebody in between reads it. */
export const TOLD = "inner TLS has ended";

type WriteCallback = (error?: Error | null) => void;

/**
 * A link as node:tls takes it. It is never stopped: what may arrive is bounded by the windows of the session above, and
 * until there is one by `allowance`.
 */
export class LinkDuplex extends Duplex implements TransportConsumer {
  onRoom: () => void = () => {};
  /** The same at once, for whoever hears of the end from elsewhere. */
  endedBy: Error | undefined;
  readonly #link: InnerLink;
  #allowance: number;
  readonly #over = deferred<Error | undefined>();

  /** `allowance`: bytes that may arrive until `admit`. */
  constructor(link: InnerLink, allowance: number) {
    super({ allowHalfOpen: true });
    this.#link = link;
    this.#allowance = allowance;
    this.on("error", ignore);
    link.start(this);
  }

  /** Resolves when the link is gone, with the reason. */
  get over(): Promise<Error | undefined> {
    return this.#over.promise;
  }

  /** The peer is known: it may send what it likes. */
  admit(): void {
    this.#allowance = Number.POSITIVE_INFINITY;
  }

  onBytes(chunk: Buffer): void {
    this.#allowance -= chunk.length;
    if (this.#allowance < 0) this.destroy(new Error("too many bytes came before the inner TLS handshake was done"));
    else this.push(chunk);
  }

  onWritable(): void {
    this.onRoom();
  }

  onClosed(reason: Error | undefined): void {
    this.endedBy = reason;
    this.#over.resolve(reason);
    if (reason === undefined) this.push(null);
    else this.destroy(reason);
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: WriteCallback): void {
    this.#link.write([chunk], chunk.length);
    done();
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: WriteCallback): void {
    let byteLength = 0;
    const batch = chunks.map(({ chunk }) => {
      byteLength += chunk.length;
      return chunk;
    });
    this.#link.write(batch, byteLength);
    done();
  }

  override _final(done: WriteCallback): void {
    this.#link.end();
    done();
  }

  /** After an end in order the link still has what it has not delivered. */
  override _destroy(error: Error | null, done: WriteCallback): void {
    if (error !== null || !this.writableFinished) this.#link.destroy(error ?? undefined, TOLD);
    done(error);
  }
}

/** Inner TLS as a session takes it: the link below says when there is room, and when it is over. */
export class InnerPipe implements Transport {
  readonly #link: InnerLink;
  readonly #bottom: LinkDuplex;
  readonly #socket: TLSSocket;
  #consumer: TransportConsumer | undefined;
  /** What came before delivery began; `undefined` from then on. */
  #early: Buffer[] | undefined = [];
  #onEarly: () => void = () => {};
  #pendingBytes = 0;

  constructor(link: InnerLink, bottom: LinkDuplex, socket: TLSSocket) {
    this.#link = link;
    this.#bottom = bottom;
    this.#socket = socket;
    // A record that cannot be read is an error and, once the handshake is done, not yet an end.
    socket.on("error", (error) => this.destroy(new Error(`inner TLS: ${error.message.trim()}`, { cause: error })));
    socket.on("data", this.#onData);
    bottom.onRoom = () => this.#consumer?.onWritable();
  }

  // ── the first words ────────────────────────────────────────────────────────────────────────────────────────────

  sendWords(words: InnerHello | InnerReply): void {
    this.#socket.write(encodeInner(words));
  }

  /** JSON of the peer's first words; rejects when the link is gone before. What follows them is the session's. */
  readWords(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#onEarly = () => {
        const words = splitInner(Buffer.concat(this.#early ?? []));
        if (words === undefined) return;
        this.#early = words.rest.length === 0 ? [] : [words.rest];
        this.#onEarly = () => {};
        resolve(words.json);
      };
      this.#bottom.over.then((reason) => reject(reason ?? new Error("the peer closed inside the inner handshake")));
      this.#onEarly();
    });
  }

  // ── the transport ──────────────────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    this.#bottom.admit();
    // Not from inside the constructor that calls this: its owner has nothing in hand yet. No chunk can come between.
    queueMicrotask(() => {
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const piece of early) consumer.onBytes(piece);
    });
    // What the link has delivered last is still on its way through TLS.
    void this.#bottom.over.then((reason) => setImmediate(() => this.#closed(consumer, reason)));
  }

  #closed(consumer: TransportConsumer, reason: Error | undefined): void {
    this.#socket.off("data", this.#onData);
    this.#socket.destroy();
    consumer.onClosed(reason);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#early === undefined) {
      this.#consumer?.onBytes(chunk);
      return;
    }
    this.#early.push(chunk);
    this.#onEarly();
  };

  get pendingBytes(): number {
    return this.#pendingBytes + this.#link.pendingBytes;
  }

  /** What TLS has in hand will want its place in the link. */
  room(): number {
    return this.#link.room() - this.#pendingBytes;
  }

  wholeRecords(at: number, most: number): number {
    return wholeRecords(at, most);
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.#socket.destroyed || this.#socket.writableEnded) return;
    this.#pendingBytes += byteLength;
    const taken = (): void => {
      this.#pendingBytes -= byteLength;
      this.#consumer?.onWritable();
    };
    const socket = this.#socket;
    if (byteLength <= SMALL_BATCH_BYTES) {
      socket.write(Buffer.concat(batch, byteLength), taken);
      return;
    }
    socket.cork();
    for (const [index, buffer] of batch.entries()) {
      if (index === batch.length - 1) socket.write(buffer, taken);
      else socket.write(buffer);
    }
    socket.uncork();
  }

  /** close_notify goes behind all that was written, and the end of the link behind that. */
  end(): void {
    this.#socket.end();
  }

  destroy(reason?: Error): void {
    this.#link.destroy(reason, TOLD);
  }
}

function ignore(): void {}

/** Who is asked for a new carrier has peace for so long, ms: each costs both ends two handshakes and more. */
const ASKED_EVERY_MS = 5_000;

/**
 * A link under inner TLS: somebody in between may read and write what its carriers say. Payload is proved inside, and with
 * pings, acks and ends nobody can do more than with the cable; of all other words none is believed that would last longer
 * than the carrier. `drain` is said by the session's go-away, inside; `rotate` is heard, now and then.
 *
 * It has no name, and dies with its carrier, until `assignId`.
 */
export class UntrustedLink extends Link {
  readonly #everyMs: number;
  #heardAt = Number.NEGATIVE_INFINITY;
  #later: NodeJS.Timeout | undefined;

  constructor(
    remote: string,
    carrier: LinkCarrier,
    options: Omit<LinkOptions, "graceMs">,
    askedEveryMs = ASKED_EVERY_MS,
  ) {
    super("", remote, carrier, { ...options, graceMs: 0 });
    this.#everyMs = askedEveryMs;
  }

  override watch(watcher: LinkWatcher): void {
    super.watch({
      ...watcher,
      onControl: (message) => {
        if (message.type === "rotate") this.#hear(() => watcher.onControl?.(message));
      },
      onClosed: () => {
        clearTimeout(this.#later);
        watcher.onClosed?.();
      },
    });
  }

  /** Of those that come too soon the last is heard, later. */
  #hear(tell: () => void): void {
    clearTimeout(this.#later);
    const waitMs = this.#heardAt + this.#everyMs - performance.now();
    if (waitMs > 0) {
      this.#later = setTimeout(() => this.#hear(tell), waitMs).unref();
      return;
    }
    this.#heardAt = performance.now();
    tell();
  }
}
