import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { wholeRecords } from "../basics/bytes.ts";
import { deferred } from "../basics/promises.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import type { LinkCarrier } from "./carrier-cursor.ts";
import { encodeInner, type InnerHello, type InnerReply, splitInner } from "./control.ts";
import { Link } from "./link.ts";
import type { LinkOptions, LinkWatcher } from "./link-options.ts";

/** A link below inner TLS. `publicReason`: what its peer is told where a middlebox can read it. */
export interface InnerLink extends Transport {
  destroy(reason?: Error, publicReason?: string): void;
}

/** Many frames of a few bytes: one copy costs less than handing each buffer to TLS. */
const SMALL_BATCH_BYTES = 8 * 1024;

/** Why a link under inner TLS ends, as a middlebox may read it. */
export const PUBLIC_REASON = "inner TLS has ended";

type WriteCallback = (error?: Error | null) => void;

/**
 * A link as a stream for node:tls. It is never paused: what may arrive is bounded by the windows of the session above,
 * and by `allowance` until there is a session.
 */
export class LinkDuplex extends Duplex implements TransportConsumer {
  onRoom: () => void = () => {};
  /** Why the link is over, for those that learn of its end from elsewhere. */
  endedBy: Error | undefined;
  readonly #link: InnerLink;
  #allowance: number;
  readonly #over = deferred<Error | undefined>();

  /** `allowance`: bytes that may arrive until `liftAllowance`. */
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

  /** The peer is authenticated, and the session bounds what it sends. */
  liftAllowance(): void {
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

  /** After an end in order the link still delivers what it has. */
  override _destroy(error: Error | null, done: WriteCallback): void {
    if (error !== null || !this.writableFinished) this.#link.destroy(error ?? undefined, PUBLIC_REASON);
    done(error);
  }
}

/** Inner TLS as the transport of a session. The link below says when there is room, and when it is over. */
export class InnerPipe implements Transport {
  readonly #link: InnerLink;
  readonly #bottom: LinkDuplex;
  readonly #socket: TLSSocket;
  #consumer: TransportConsumer | undefined;
  /** Bytes that came before `start`; `undefined` from then on. */
  #early: Buffer[] | undefined = [];
  #onEarly: () => void = () => {};
  #pendingBytes = 0;

  constructor(link: InnerLink, bottom: LinkDuplex, socket: TLSSocket) {
    this.#link = link;
    this.#bottom = bottom;
    this.#socket = socket;
    // After the handshake an invalid record is an error, but it does not end the socket.
    socket.on("error", (error) => this.destroy(new Error(`inner TLS: ${error.message.trim()}`, { cause: error })));
    socket.on("data", this.#onData);
    bottom.onRoom = () => this.#consumer?.onWritable();
  }

  // ── the first message ──────────────────────────────────────────────────────────────────────────────────────────

  sendMessage(message: InnerHello | InnerReply): void {
    this.#socket.write(encodeInner(message));
  }

  /**
   * Reads the JSON of the peer's first message; rejects when the link is gone before. The bytes behind it stay here.
   */
  readMessage(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#onEarly = () => {
        const message = splitInner(Buffer.concat(this.#early ?? []));
        if (message === undefined) return;
        this.#early = message.rest.length === 0 ? [] : [message.rest];
        this.#onEarly = () => {};
        resolve(message.json);
      };
      this.#bottom.over.then((reason) => reject(reason ?? new Error("the peer closed inside the inner handshake")));
      this.#onEarly();
    });
  }

  // ── the transport ──────────────────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    this.#bottom.liftAllowance();
    // Not at once: the constructor that calls this has not returned yet. No chunk can come in between.
    queueMicrotask(() => {
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const piece of early) consumer.onBytes(piece);
    });
    // The last bytes of the link are still passing through TLS.
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

  /** Bytes that TLS has not written yet need their place in the link, too. */
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

  /** close_notify goes behind all that was written, and the end of the link goes behind that. */
  end(): void {
    this.#socket.end();
  }

  destroy(reason?: Error): void {
    this.#link.destroy(reason, PUBLIC_REASON);
  }
}

function ignore(): void {}

/**
 * A peer may ask for a new carrier, or name the number of servers, once in this time, ms: an agent dials for either.
 */
const REQUEST_EVERY_MS = 5_000;

/** Delivers one message in `everyMs`. Of those that come too soon the last one is delivered later. */
class Paced {
  readonly #everyMs: number;
  #deliveredAt = Number.NEGATIVE_INFINITY;
  #later: NodeJS.Timeout | undefined;

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  offer(deliver: () => void): void {
    this.stop();
    const waitMs = this.#deliveredAt + this.#everyMs - performance.now();
    if (waitMs > 0) {
      this.#later = setTimeout(() => this.offer(deliver), waitMs).unref();
      return;
    }
    this.#deliveredAt = performance.now();
    deliver();
  }

  stop(): void {
    clearTimeout(this.#later);
  }
}

/**
 * A link under inner TLS, whose carriers a middlebox may read and change. Inner TLS protects the payload, and with
 * pings, acks and closes a middlebox can do no more than with the cable. Other messages are ignored, except `rotate`
 * and
 * `servers`, whose rate is bounded; the session's go-away inside takes the place of `drain`.
 *
 * It has no id, and ends with its carrier, until `assignId`.
 */
export class UntrustedLink extends Link {
  readonly #rotate: Paced;
  readonly #servers: Paced;

  constructor(
    remote: string,
    carrier: LinkCarrier,
    options: Omit<LinkOptions, "graceMs">,
    requestEveryMs = REQUEST_EVERY_MS,
  ) {
    super("", remote, carrier, { ...options, graceMs: 0 });
    this.#rotate = new Paced(requestEveryMs);
    this.#servers = new Paced(requestEveryMs);
  }

  override watch(watcher: LinkWatcher): void {
    super.watch({
      ...watcher,
      onControl: (message) => {
        if (message.type === "rotate") this.#rotate.offer(() => watcher.onControl?.(message));
        else if (message.type === "servers") this.#servers.offer(() => watcher.onControl?.(message));
      },
      onClosed: () => {
        this.#rotate.stop();
        this.#servers.stop();
        watcher.onClosed?.();
      },
    });
  }
}
