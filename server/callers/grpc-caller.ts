import { constants } from "node:http2";
import { Duplex } from "node:stream";
import { bytesIn } from "../../shared/basics/bytes.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { dataHead } from "../../shared/konnectivity/data.ts";
import type { GrpcCall } from "../../shared/konnectivity/grpc-call.ts";
import { type ControlPacket, encodePacket } from "../../shared/konnectivity/packet.ts";
import { MalformedPackets, type PacketHandler, PacketReader } from "../../shared/konnectivity/packet-reader.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, outcome, printable } from "../../shared/outcomes.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { CallerEnd } from "./caller-end.ts";

/** Bytes of the process that one call takes while it carries nothing; measured. */
const CALL_BYTES = 15 * 1024;

/**
 * The payload of one packet at most, bytes. konnectivity-client queues ten packets for its reader, and ends the
 * connection when none of them is taken for 10 s: many small ones would fill the queue sooner.
 */
const MAX_PAYLOAD = 64 * 1024;

/** Answers that may wait for a caller that reads none, and one packet before them, bytes. */
const MAX_ANSWERS = 2 * MAX_PAYLOAD;

/** A target may still send this much after its caller has closed the connection, bytes: TLS says goodbye. */
const MAX_DROPPED = 16 * 1024;

/** A call has one connection, and a client looks an id up among those of its call. */
const CONNECT_ID = 1;
const connectID = BigInt(CONNECT_ID);

const UNKNOWN_CONNECTION = "this gRPC call has no such connection";
const SECOND_DIAL = "this gRPC call has a connection already, and carries one: make a call for each";

/** Packets for connections that the call does not have: a client sends one now and then, where packets have crossed. */
const UNKNOWN_PACKETS = { burst: 200, perSecond: 20 } as const;

type Done = (error?: Error | null) => void;

/**
 * The caller of one connection by Konnectivity's gRPC protocol, and the bytes of that connection (docs/decisions/0051).
 *
 * The protocol has no half-close. The caller's CLOSE_REQ ends both directions: it is answered at once, the target gets
 * the end, and what the target still sends is dropped. The target's end becomes a CLOSE_RSP, and what the caller still
 * sends is dropped.
 *
 * ```
 *  waiting ─DIAL_REQ─▶ dialling ─DIAL_RSP─▶ open ─CLOSE_REQ, CLOSE_RSP─▶ closed
 *     └───────────────────┴──────────────────┴──── the call has ended ──────▲
 * ```
 */
export class GrpcCaller extends Duplex implements CallerEnd, PacketHandler {
  readonly stream: Duplex = this;
  readonly connection: IncomingConnection;
  readonly idleBytes = CALL_BYTES;
  /** konnectivity-client may lose bytes of the target that come together with the DIAL_RSP. */
  readonly gapMs: number;
  readonly #call: GrpcCall;
  readonly #reader = new PacketReader(this);
  readonly #onDial: (address: string) => void;
  readonly #deadline: NodeJS.Timeout;
  #state: "waiting" | "dialling" | "open" | "closed" = "waiting";
  /** The caller's number of its DIAL_REQ. */
  #random = 0n;
  /** Called when the packet that is on its way has left. */
  #onWritten: Done | undefined;
  #dropped = 0;
  /** The last id for which DATA came and that the call does not have. */
  #refusedId: bigint | undefined;
  readonly #unknown = new TokenBucket(UNKNOWN_PACKETS);

  /** `onDial` is called once, with the target. */
  constructor(
    call: GrpcCall,
    connection: IncomingConnection,
    { options }: ServerContext,
    onDial: (address: string) => void,
  ) {
    super({ readableHighWaterMark: MAX_PAYLOAD });
    this.#call = call;
    this.connection = connection;
    this.#onDial = onDial;
    this.gapMs = options.establishedGapMs;
    this.#deadline = setTimeout(() => {
      this.#call.end("deadlineExceeded", "the DIAL_REQ did not arrive in time");
      this.destroy();
    }, options.headerTimeoutMs);
    this.on("error", ignore);
    call.stream.on("data", this.#onChunk);
    call.stream.on("end", this.#onCallEnd);
    call.stream.on("close", this.#onCallClosed);
  }

  /** Bytes of the caller that nobody has taken, here and in the call (shared/relay/splice-memory.ts). */
  get readAhead(): number {
    return this.readableLength + this.#call.stream.readableLength;
  }

  establish(onWritten?: () => void): void {
    if (this.#state === "dialling") {
      this.#state = "open";
      const value = { random: this.#random, connectID, error: "" };
      this.#answer({ case: "dialResponse", value }, onWritten);
    } else onWritten?.();
  }

  /** The sentence is in the DIAL_RSP, since konnectivity-client shows its user no status. */
  refuse({ code, message }: CulvertError): void {
    if (this.#state !== "closed") {
      const error = printable(message);
      if (outcome(code).http === undefined) this.#end("cancelled");
      else {
        this.#answer({ case: "dialResponse", value: { random: this.#random, connectID: 0n, error } });
        if (code === "unauthenticated") this.#end("unauthenticated", error);
        else this.#end("ok");
      }
    }
    this.destroy();
  }

  /** A CLOSE_RSP would wait behind bytes that the caller does not take; then the call is reset. */
  reset(): void {
    if (this.#state === "open" && this.writableLength === 0) {
      this.#answer({ case: "closeResponse", value: { connectID, error: "the connection was reset" } });
      this.#end("ok");
    }
    this.destroy();
  }

  // ── what the caller sends ──────────────────────────────────────────────────────────────────────────────────────────

  readonly #onChunk = (chunk: Buffer): void => {
    if (this.#state === "closed") return;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof MalformedPackets)) throw error;
      this.#fail(error);
    }
  };

  onData(id: bigint, part: Buffer): void {
    if (this.#state === "closed") return;
    if (this.#state === "open" && id === connectID) {
      if (part.length > 0 && !this.push(part)) this.#call.stream.pause();
    } else if (id !== this.#refusedId) {
      this.#refusedId = id; // the further parts of its packets are dropped
      this.#answerUnknown(id);
    }
  }

  onPacket(packet: ControlPacket): void {
    if (this.#state === "closed") return;
    if (packet.case === "dialRequest") this.#onDialRequest(packet.value);
    else if (packet.case === "closeRequest") this.#onCloseRequest(packet.value.connectID);
    else if (packet.case === "closeDial" && packet.value.random === this.#random) this.#onCallerClosed();
  }

  #onDialRequest({ protocol, address, random }: { protocol: string; address: string; random: bigint }): void {
    if (this.#state !== "waiting") {
      if (this.#mayAnswer()) {
        this.#answer({ case: "dialResponse", value: { random, connectID: 0n, error: SECOND_DIAL } });
      }
      return;
    }
    clearTimeout(this.#deadline);
    this.#state = "dialling";
    this.#random = random;
    if (protocol === "tcp") this.#onDial(address);
    else this.refuse(new CulvertError("bad_target", `the protocol "${protocol}" is not carried, only "tcp"`));
  }

  /** While it dials, a caller has no id yet, and can only mean its dial. */
  #onCloseRequest(id: bigint): void {
    if (this.#state === "dialling" || (this.#state === "open" && id === connectID)) this.#onCallerClosed();
    else this.#answerUnknown(id);
  }

  /** The caller reads and writes no more. */
  #onCallerClosed(): void {
    if (this.#state === "open") {
      this.#answer({ case: "closeResponse", value: { connectID, error: "" } });
      this.#end("ok");
    } else this.#end("cancelled");
    this.push(null);
    this.#written();
  }

  /** Node reports an end for a reset and for a lost connection as well, and "close" after it. */
  readonly #onCallEnd = (): void => {
    if (this.#state === "closed" || this.#call.stream.closed) return;
    if (this.#reader.isInMessage) this.#fail(new Error("the caller's packets ended in the middle of one"));
    else if (this.#state !== "waiting") this.#onCallerClosed();
    else {
      this.#end("ok");
      this.destroy();
    }
  };

  readonly #onCallClosed = (): void => {
    if (this.#state !== "closed") this.destroy(new Error("the caller has reset its gRPC call, or lost its connection"));
  };

  override _read(): void {
    this.#call.stream.resume();
  }

  // ── what the caller gets ───────────────────────────────────────────────────────────────────────────────────────────

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#send([chunk], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    this.#send(
      chunks.map(({ chunk }) => chunk),
      done,
    );
  }

  /** One packet after the other, each when the one before has left. */
  #send(pieces: Buffer[], done: Done): void {
    if (this.#state !== "open") {
      this.#drop(bytesIn(pieces), done);
      return;
    }
    const payload = takeBytes(pieces, MAX_PAYLOAD);
    this.#onWritten = (error) => {
      if (error || pieces.length === 0) done(error);
      else this.#send(pieces, done);
    };
    const { stream } = this.#call;
    stream.cork();
    stream.write(dataHead(CONNECT_ID, bytesIn(payload)));
    for (const piece of payload) stream.write(piece, piece === payload.at(-1) ? this.#written : undefined);
    stream.uncork();
  }

  readonly #written = (error?: Error | null): void => {
    const onWritten = this.#onWritten;
    this.#onWritten = undefined;
    onWritten?.(error);
  };

  #drop(bytes: number, done: Done): void {
    this.#dropped += bytes;
    const tooMuch = this.#dropped > MAX_DROPPED;
    done(tooMuch ? new Error("the caller had closed the connection, and the target went on sending") : null);
  }

  override _final(done: Done): void {
    if (this.#state === "open") {
      this.#answer({ case: "closeResponse", value: { connectID, error: "" } }, done);
      this.#end("ok");
      this.push(null);
    } else done();
  }

  /** Fails the call when too many packets belong to no connection. */
  #mayAnswer(): boolean {
    if (this.#unknown.take(1) === 0) return true;
    this.#fail(new Error("the caller sends too many packets that belong to no connection"));
    return false;
  }

  #answerUnknown(id: bigint): void {
    if (this.#mayAnswer()) this.#answer({ case: "closeResponse", value: { connectID: id, error: UNKNOWN_CONNECTION } });
  }

  #answer(packet: ControlPacket, onWritten?: Done): void {
    const { stream } = this.#call;
    if (stream.writableLength > MAX_ANSWERS) {
      this.destroy(new Error("the caller reads no answers"));
      onWritten?.();
      return;
    }
    this.#call.respond();
    stream.write(encodePacket(packet), onWritten);
  }

  #end(...status: Parameters<GrpcCall["end"]>): void {
    this.#state = "closed";
    this.#call.end(...status);
  }

  #fail(error: Error): void {
    this.#end("invalid", error.message);
    this.destroy(error);
  }

  override _destroy(error: Error | null, done: Done): void {
    clearTimeout(this.#deadline);
    if (this.#state !== "closed") {
      this.#state = "closed";
      this.#call.stream.close(constants.NGHTTP2_CANCEL);
    }
    this.#onWritten = undefined;
    done(error);
  }
}

/** Takes at most so many bytes from the beginning of `pieces`. */
function takeBytes(pieces: Buffer[], most: number): Buffer[] {
  const taken: Buffer[] = [];
  for (let left = most; left > 0; ) {
    const piece = pieces.shift();
    if (piece === undefined) break;
    taken.push(piece.subarray(0, left));
    if (piece.length > left) pieces.unshift(piece.subarray(left));
    left -= piece.length;
  }
  return taken;
}

function ignore(): void {}
