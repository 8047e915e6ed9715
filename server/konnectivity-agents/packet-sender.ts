import type { Writable } from "node:stream";
import { encodeData } from "../../shared/konnectivity/data.ts";
import { type ControlPacket, encodePacket } from "../../shared/konnectivity/packet.ts";

type Done = (error?: Error | null) => void;

/** Longer writes are sent in parts, so that other connections of the agent have their turn, bytes. */
const MAX_PAYLOAD = 32 * 1024;

/**
 * Writes packets to the gRPC stream of an agent. Each connection has one part of its bytes under way, and the parts are
 * sent in the order in which they were written.
 */
export class PacketSender {
  readonly #out: Writable;
  /** Writes so far, and how many of them HTTP/2 has sent. */
  written = 0;
  taken = 0;

  constructor(out: Writable) {
    this.#out = out;
  }

  control(packet: ControlPacket): void {
    if (this.#out.writable) this.#write(encodePacket(packet), ignore);
  }

  /** `done` is called when all was sent, or with an error. */
  data(connectID: bigint, bytes: Buffer, done: Done): void {
    if (!this.#out.writable) {
      done(new Error("the agent takes no packets any more"));
      return;
    }
    const rest = bytes.subarray(MAX_PAYLOAD);
    const onSent: Done = (error) => (error || rest.length === 0 ? done(error) : this.data(connectID, rest, done));
    this.#out.cork();
    const pieces = encodeData(connectID, bytes.subarray(0, MAX_PAYLOAD));
    for (const [index, piece] of pieces.entries()) this.#write(piece, index < pieces.length - 1 ? ignore : onSent);
    this.#out.uncork();
  }

  #write(bytes: Buffer, done: Done): void {
    this.written++;
    this.#out.write(bytes, (error) => {
      this.taken++;
      done(error);
    });
  }
}

function ignore(): void {}
