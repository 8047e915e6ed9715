import { type LinkPool, PRESSURE, type Pressure } from "../../limits/memory-account.ts";
import type { TransportConsumer } from "../../yamux/transport.ts";
import type { LinkCarrier } from "../carrier.ts";
import type { ControlMessage } from "../control.ts";
import { CarrierLost } from "../link-events.ts";

type Item = { readonly payload: Buffer } | { readonly message: ControlMessage } | { readonly close: number };

/** One end of a wire: a carrier whose bytes arrive when the test says so. */
class WireEnd implements LinkCarrier {
  lastByteAt = 0;
  onControl: ((message: ControlMessage) => void) | undefined;
  acknowledgedOffset: (() => number | undefined) | undefined;
  /** Items that this end has sent and the other has not been given. */
  readonly sent: Item[] = [];
  closedWith: number | undefined;
  /** It was abandoned, which does not wait for the peer. */
  isAbandoned = false;
  /** The time of the last `probe`, ms. */
  probedMs: number | undefined;
  pendingBytes = 0;
  /** The owner knows of the end. */
  gone = false;
  #consumer: TransportConsumer | undefined;
  #early: Buffer[] = [];

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    for (const piece of this.#early.splice(0)) consumer.onBytes(piece);
  }

  wholeRecords(_at: number, most: number): number {
    return most;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.gone) return;
    this.pendingBytes += byteLength;
    this.sent.push({ payload: Buffer.concat(batch, byteLength) });
  }

  sendControl(message: ControlMessage): void {
    if (!this.gone) this.sent.push({ message });
  }

  probe(withinMs: number): void {
    this.probedMs = withinMs;
  }

  end(): void {
    this.close(1000);
  }

  close(code: number): void {
    this.isAbandoned = false;
    if (this.gone || this.closedWith !== undefined) return;
    this.closedWith = code;
    this.sent.push({ close: code });
  }

  abandon(code: number): void {
    this.close(code);
    this.isAbandoned = true;
  }

  /** Ends like a process that is killed: it sends nothing. For who has dialled it, before a link has it. */
  destroy(): void {
    this.gone = true;
  }

  /** Bytes leave this end's buffer, delivered or not. */
  take(bytes: number): void {
    this.pendingBytes -= bytes;
    if (!this.gone) this.#consumer?.onWritable();
  }

  // ── what arrives ───────────────────────────────────────────────────────────────────────────────────────────────

  receive(item: Item): void {
    if (this.gone) return;
    if ("payload" in item) {
      if (this.#consumer === undefined) this.#early.push(item.payload);
      else this.#consumer.onBytes(item.payload);
    } else if ("message" in item) this.onControl?.(item.message);
    else if (item.close === 1000) this.over(undefined);
    else this.over(lost(`closed with ${item.close}`));
  }

  /** This end sees that the connection is gone. */
  notice(): void {
    this.over(lost("cut"));
  }

  /** It ends here: cleanly, or for this reason. */
  over(reason: Error | undefined): void {
    if (this.gone) return;
    this.gone = true;
    this.#consumer?.onClosed(reason);
  }
}

/** A connection between an agent and a server that delivers, byte by byte, what the test lets through. */
export class Wire {
  readonly agent = new WireEnd();
  readonly server = new WireEnd();
  isCut = false;

  /** Nothing arrives any more; nobody knows yet. */
  cut(): void {
    this.isCut = true;
  }

  /**
   * Lets up to `bytes` of payload pass from one end, with the messages between; 0: only a message that stands in front.
   */
  deliver(from: "agent" | "server", bytes: number): void {
    const [near, far] = from === "agent" ? [this.agent, this.server] : [this.server, this.agent];
    let left = bytes;
    while (!this.isCut) {
      const item = near.sent[0];
      if (item === undefined) return;
      if (!("payload" in item)) {
        near.sent.shift();
        far.receive(item);
        if (left === 0) return;
        continue;
      }
      if (left === 0) return;
      const piece = item.payload.subarray(0, left);
      left -= piece.length;
      if (piece.length === item.payload.length) near.sent.shift();
      else near.sent[0] = { payload: item.payload.subarray(piece.length) };
      far.receive({ payload: piece });
      near.take(piece.length);
    }
  }
}

/** Why a carrier was lost. */
export function lost(message: string): CarrierLost {
  return new CarrierLost(message, { lossCause: "reset", ageMs: 1, idleMs: 1 });
}

/** The bytes that links keep together, and the pressure that the test wants. */
export class Pool implements LinkPool {
  pressure: Pressure = PRESSURE.none;
  held = 0;

  enter(): void {}

  hold(delta: number): void {
    this.held += delta;
  }
}
