import type { Duplex } from "node:stream";
import type { Transport, TransportConsumer } from "../transport.ts";

/** A session over any Duplex: a socket, a pipe, one end of `duplexPair()`. */
export class DuplexTransport implements Transport {
  readonly #duplex: Duplex;
  #consumer: TransportConsumer | undefined;
  pendingBytes = 0;
  #failure: Error | undefined;
  #delivering = false;
  readonly #arrived: Buffer[] = [];

  constructor(duplex: Duplex) {
    this.#duplex = duplex;
    duplex.on("error", (error) => {
      this.#failure = error;
    });
  }

  room(): number {
    return Number.POSITIVE_INFINITY;
  }

  wholeRecords(_at: number, most: number): number {
    return most;
  }

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    this.#duplex.on("data", (chunk: Buffer) => this.#deliver(chunk));
    this.#duplex.on("end", () => this.#duplex.end());
    this.#duplex.on("close", () => consumer.onClosed(this.#failure));
  }

  /** A `duplexPair()` answers a write from inside it; the consumer is spared that. */
  #deliver(chunk: Buffer): void {
    this.#arrived.push(chunk);
    if (this.#delivering) return;
    this.#delivering = true;
    for (let next = this.#arrived.shift(); next !== undefined; next = this.#arrived.shift()) {
      this.#consumer?.onBytes(next);
    }
    this.#delivering = false;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.#duplex.destroyed || this.#duplex.writableEnded) return;
    this.pendingBytes += byteLength;
    const taken = () => {
      this.pendingBytes -= byteLength;
      this.#consumer?.onWritable();
    };
    this.#duplex.cork();
    for (const [index, buffer] of batch.entries()) {
      if (index === batch.length - 1) this.#duplex.write(buffer, taken);
      else this.#duplex.write(buffer);
    }
    this.#duplex.uncork();
  }

  end(): void {
    this.#duplex.end();
    this.#duplex.resume();
  }

  destroy(reason?: Error): void {
    this.#duplex.destroy(reason);
  }
}
