/**
 * The ordered, reliable byte pipe below a session: a link, a socket, or a pair in tests.
 *
 * It has exactly one consumer, which is given to `start`, so that nothing that arrives before is lost.
 */
export interface Transport {
  /** Starts delivery. Called once, by the session's constructor; nothing is delivered before. */
  start(consumer: TransportConsumer): void;

  /**
   * Takes a batch of whole frames. Nobody changes the buffers from here on until the transport has released them. It
   * always accepts; the session keeps `pendingBytes` below its bound.
   */
  write(batch: readonly Buffer[], byteLength: number): void;

  /** Bytes given to `write` that the layer below has not taken yet. */
  readonly pendingBytes: number;

  /** Bytes that the path has room for now; 0 or less: none. Called when there is something to send. */
  room(): number;

  /**
   * How many of the `most` bytes that begin at byte `at` of a batch fill whole TLS records below; `most` if no record
   * ends among them. A frame that ends inside a record costs the peer one more piece.
   */
  wholeRecords(at: number, most: number): number;

  /** Ends the pipe when what was written has been delivered. */
  end(): void;

  /** Ends the pipe now; what is under way may be lost. */
  destroy(reason?: Error): void;
}

export interface TransportConsumer {
  /** Bytes in order, in any split; never called from inside itself. The buffer is the consumer's to keep. */
  onBytes(chunk: Buffer): void;
  /** `pendingBytes` has fallen, or `room()` has risen. */
  onWritable(): void;
  /** The pipe has closed. Called once, after the last byte; `reason` is absent on a clean end. */
  onClosed(reason: Error | undefined): void;
}
