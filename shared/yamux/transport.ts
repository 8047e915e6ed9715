/**
 * The only door between a session and what carries it: a link, a socket, or a pair in tests.
 *
 * A transport is an ordered, reliable byte pipe. It has exactly one consumer, given to `start`, so that nothing that
 * arrives is lost between its construction and the first listener.
 */
export interface Transport {
  /** Begin delivery. Called once, by the session's constructor; nothing is delivered before. */
  start(consumer: TransportConsumer): void;

  /**
   * Take a batch of whole frames. The buffers belong to the transport from here on and are not changed by anyone until it
   * has let go of them. Always accepts; the session keeps what `pendingBytes` says below its bound.
   */
  write(batch: readonly Buffer[], byteLength: number): void;

  /** Bytes handed to `write` that whatever is below has not taken yet. */
  readonly pendingBytes: number;

  /** Asked when there is something to send: the bytes worth writing now, for reasons of the path; no more than 0: none. */
  room(): number;

  /**
   * How many of the `most` bytes from byte `at` of a batch on fill whole records of what is below; `most` where none ends
   * among them. A frame that ends inside a record costs the peer one piece more.
   */
  wholeRecords(at: number, most: number): number;

  /** No more writes: what was written is still delivered, then the pipe ends. */
  end(): void;

  /** End now; what is under way may be lost. */
  destroy(reason?: Error): void;
}

export interface TransportConsumer {
  /** Bytes in order, in any split; never called from inside itself. The buffer is the consumer's to keep. */
  onBytes(chunk: Buffer): void;
  /** `pendingBytes` has fallen, or `room()` has risen. */
  onWritable(): void;
  /** The pipe is gone, once, after the last byte. `reason` is absent on a clean end. */
  onClosed(reason: Error | undefined): void;
}
