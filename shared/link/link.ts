import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import type { Carrier } from "./carrier.ts";
import type { ControlMessage } from "./control.ts";

/**
 * The ordered byte pipe between an agent and a server, as a session sees it. A link has one carrier, and ends with it.
 */
export class Link implements Transport {
  readonly id: string;
  /** The other end's address, for logs. */
  readonly remote: string;
  readonly #carrier: Carrier;

  constructor(id: string, remote: string, carrier: Carrier) {
    this.id = id;
    this.remote = remote;
    this.#carrier = carrier;
  }

  get onControl(): ((message: ControlMessage) => void) | undefined {
    return this.#carrier.onControl;
  }

  /** Control messages that are not the link's own: drain. */
  set onControl(listener: ((message: ControlMessage) => void) | undefined) {
    this.#carrier.onControl = listener;
  }

  sendControl(message: ControlMessage): void {
    this.#carrier.sendControl(message);
  }

  get pendingBytes(): number {
    return this.#carrier.pendingBytes;
  }

  start(consumer: TransportConsumer): void {
    this.#carrier.start(consumer);
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    this.#carrier.write(batch, byteLength);
  }

  end(): void {
    this.#carrier.end();
  }

  /** Ends with a WebSocket close code and a reason that a person can act on. */
  close(code: number, reason: string): void {
    this.#carrier.close(code, reason);
  }

  destroy(reason?: Error): void {
    this.#carrier.destroy(reason);
  }
}
