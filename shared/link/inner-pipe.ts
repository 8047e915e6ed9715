import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import * as z from "zod";
import { wholeRecords } from "../basics/bytes.ts";
import { deferred } from "../basics/promises.ts";
import { firstIssue, schemaMessage } from "../basics/text.ts";
import { MAX_TOKEN_BYTES } from "../http/bearer.ts";
import { credentialFault } from "../outcomes.ts";
import { LinkRefused } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import { helloSchema, welcomeSchema } from "./control.ts";
import { SMALL_BATCH_BYTES } from "./frames.ts";

/** A link below inner TLS. `publicReason` is sent to the peer outside inner TLS, where a middlebox can read it. */
export interface InnerLink extends Transport {
  destroy(reason?: Error, publicReason?: string): void;
}

/** The public reason for the end of a link below inner TLS: a middlebox may read it. */
export const PUBLIC_REASON = "inner TLS has ended";

/** The reason for ending a link below inner TLS when the network of the peer owes bytes (`WastedBytes`). */
export const UNACCEPTED = "its network has shown too many certificates that are not accepted inside, and has to wait";

type WriteCallback = (error?: Error | null) => void;

/**
 * A link as a stream for node:tls. It is never paused, because the windows of the session above bound what may arrive,
 * and `allowance` does so until there is a session.
 */
export class LinkDuplex extends Duplex implements TransportConsumer {
  onRoom: () => void = () => {};
  /** The reason why the link has ended, for code that sees another error first. */
  endedBy: Error | undefined;
  /** The number of bytes that have arrived. */
  bytesRead = 0;
  readonly #link: InnerLink;
  #allowance: number;
  /** Whether something was written: the answer to the first bytes of the peer. */
  #hasAnswered = false;
  readonly #mayReceive: (byteLength: number) => boolean;
  readonly #over = deferred<Error | undefined>();

  /**
   * Until `liftAllowance` at most `allowance` bytes may arrive, and each chunk only if `mayReceive` returns true. It is
   * given the number of bytes after our first answer: none of the ClientHello.
   */
  constructor(link: InnerLink, allowance: number, mayReceive: (byteLength: number) => boolean = () => true) {
    super({ allowHalfOpen: true });
    this.#link = link;
    this.#allowance = allowance;
    this.#mayReceive = mayReceive;
    this.on("error", () => {});
    link.start(this);
  }

  /** Resolves with the reason when the link has ended. */
  get over(): Promise<Error | undefined> {
    return this.#over.promise;
  }

  /** Lifts the bound of the constructor: the peer is authenticated, and the session bounds what it sends. */
  liftAllowance(): void {
    this.#allowance = Number.POSITIVE_INFINITY;
  }

  onBytes(chunk: Buffer): void {
    this.bytesRead += chunk.length;
    this.#allowance -= chunk.length;
    if (this.#allowance < 0) this.destroy(new Error("too many bytes came before the inner TLS handshake was done"));
    else if (this.#allowance < Number.POSITIVE_INFINITY && !this.#mayReceive(this.#hasAnswered ? chunk.length : 0))
      this.destroy(new Error(UNACCEPTED));
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
    this.#hasAnswered = true;
    this.#link.write([chunk], chunk.length);
    done();
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: WriteCallback): void {
    this.#hasAnswered = true;
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

  /** After a clean end the link still delivers what it has. */
  override _destroy(error: Error | null, done: WriteCallback): void {
    if (error !== null || !this.writableFinished) this.#link.destroy(error ?? undefined, PUBLIC_REASON);
    done(error);
  }
}

/** Inner TLS as the transport of a session. The link below reports when there is room, and when it has ended. */
export class InnerPipe implements Transport {
  readonly #link: InnerLink;
  readonly #bottom: LinkDuplex;
  readonly #socket: TLSSocket;
  #consumer: TransportConsumer | undefined;
  /** Bytes that arrived before `start`; `undefined` after it. */
  #early: Buffer[] | undefined = [];
  #onEarly: () => void = () => {};
  #pendingBytes = 0;

  constructor(link: InnerLink, bottom: LinkDuplex, socket: TLSSocket) {
    this.#link = link;
    this.#bottom = bottom;
    this.#socket = socket;
    // An invalid record after the handshake emits an error, but does not end the socket.
    socket.on("error", (error) => this.destroy(new Error(`inner TLS: ${error.message.trim()}`, { cause: error })));
    socket.on("data", this.#onData);
    bottom.onRoom = () => this.#consumer?.onWritable();
  }

  // ── the first message ──────────────────────────────────────────────────────────────────────────────────────────

  sendMessage(message: InnerHello | InnerReply): void {
    this.#socket.write(encodeInner(message));
  }

  /** Reads the JSON of the peer's first message, and keeps what follows it. Rejects if the link ends before. */
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
    // Early bytes are delivered in a microtask, because a constructor calls `start`. No chunk can come before that.
    queueMicrotask(() => {
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const piece of early) consumer.onBytes(piece);
    });
    // The end is reported one turn later, because the last bytes of the link are still passing through TLS.
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

  /** Room in the link, less the bytes that TLS has not written yet. */
  room(): number {
    return this.#link.room() - this.#pendingBytes;
  }

  readonly wholeRecords = wholeRecords;

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

  /** Sends close_notify after all that was written, and then ends the link. */
  end(): void {
    this.#socket.end();
  }

  destroy(reason?: Error): void {
    this.#link.destroy(reason, PUBLIC_REASON);
  }
}

// ── the first message, one each way: uint16 length and JSON ─────────────────────────────────────────────────────────

/** The hello. `bearer`: the agent's token, if any. `renews`: the link whose agent proves its identity again here. */
const innerHelloSchema = helloSchema.omit({ resume: true }).extend({
  bearer: z.string().max(MAX_TOKEN_BYTES).optional(),
  renews: welcomeSchema.shape.link.optional(),
});
export type InnerHello = z.infer<typeof innerHelloSchema>;

/** The welcome. It has no resume key, because both ends derive that from inner TLS. */
const innerWelcomeSchema = welcomeSchema.omit({ key: true });
export type InnerWelcome = z.infer<typeof innerWelcomeSchema>;

const renewedSchema = z.object({ type: z.literal("renewed") });
export type Renewed = z.infer<typeof renewedSchema>;

const refusedSchema = z.object({
  type: z.literal("refused"),
  status: z.number().int().optional(),
  closeCode: z.number().int().optional(),
  reason: z.string().max(2_048),
  fault: z.string().max(64).optional(),
  retryAfterMs: z.number().min(0).optional(),
});
export type Refused = z.infer<typeof refusedSchema>;

const innerReplySchema = z.discriminatedUnion("type", [innerWelcomeSchema, renewedSchema, refusedSchema]);
type InnerReply = InnerWelcome | Renewed | Refused;

const LENGTH_BYTES = 2;

export function encodeInner(message: InnerHello | InnerReply): Buffer {
  const json = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt16BE(json.length);
  return Buffer.concat([length, json]);
}

/** Splits a first message from the bytes after it. Returns `undefined` until it is complete. */
export function splitInner(bytes: Buffer): { readonly json: string; readonly rest: Buffer } | undefined {
  if (bytes.length < LENGTH_BYTES) return undefined;
  const end = LENGTH_BYTES + bytes.readUInt16BE(0);
  if (bytes.length < end) return undefined;
  return { json: bytes.toString("utf8", LENGTH_BYTES, end), rest: bytes.subarray(end) };
}

/** Parses a hello. Throws an `Error` that says what is wrong. */
export function parseInnerHello(json: string): InnerHello {
  return parse(innerHelloSchema, json, "hello");
}

/** Parses the server's answer. Throws `LinkRefused` if that is a refusal, or an `Error` that says what is wrong. */
export function parseInnerReply(json: string): InnerWelcome | Renewed {
  const answer = parse(innerReplySchema, json, "answer");
  if (answer.type !== "refused") return answer;
  const { status, closeCode, reason, fault, retryAfterMs } = answer;
  throw new LinkRefused({ status, closeCode, reason, fault: credentialFault(fault), retryAfterMs });
}

function parse<T>(schema: z.ZodType<T>, json: string, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new Error(`the inner ${what} is not JSON`);
  }
  const parsed = schema.safeParse(value, { error: schemaMessage });
  if (parsed.success) return parsed.data;
  throw new Error(`bad inner ${what}: ${firstIssue(parsed.error)}`);
}
