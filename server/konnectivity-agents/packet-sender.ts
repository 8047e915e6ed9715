import type { Writable } from "node:stream";
import { encodeData } from "../../shared/konnectivity/data.ts";
import { type ControlPacket, encodePacket } from "../../shared/konnectivity/packet.ts";

type Done = (error?: Error | null) => void;

/** Writes packets to the gRPC stream of an agent, which are sent in the order in which they were written. */
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

  /** `done` is called when it was sent, or with an error. */
  data(connectID: bigint, bytes: Buffer, done: Done): void {
    if (!this.#out.writable) {
      done(new Error("the agent takes no packets any more"));
      return;
    }
    this.#out.cork();
    const pieces = encodeData(connectID, bytes);
    for (const [index, piece] of pieces.entries()) this.#write(piece, index < pieces.length - 1 ? ignore : done);
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
