import { connect, type TcpNetConnectOpts } from "node:net";
import { Duplex } from "node:stream";
import { type ConnectionOptions, connect as connectTls } from "node:tls";

/**
 * A TLS 1.3 client that has its certificate, the end of its handshake and a request ready, and sends them when `goOn`
 * is called: many of them can arrive in one turn of the server's loop.
 */
export class HeldClient {
  readonly #raw;
  /** Bytes that TLS has written after the ClientHello; `undefined` once they are sent. */
  #held: Buffer[] | undefined = [];
  #hasSaidHello = false;

  /** `onAnswer` is called when the server has sent something after the handshake. */
  constructor(to: TcpNetConnectOpts, options: ConnectionOptions, onAnswer: () => void = () => {}) {
    const raw = connect({ ...to, noDelay: true });
    this.#raw = raw;
    const socket = new Duplex({
      read() {},
      write: (chunk: Buffer, _encoding, done) => {
        if (!this.#hasSaidHello || this.#held === undefined) raw.write(chunk);
        else this.#held.push(chunk);
        this.#hasSaidHello = true;
        done();
      },
    });
    raw.on("data", (chunk) => socket.push(chunk));
    raw.on("error", () => {}).on("close", () => socket.destroy());
    const tls = connectTls({ ...options, socket, minVersion: "TLSv1.3", rejectUnauthorized: false });
    tls.on("error", () => {}).once("data", onAnswer);
    tls.once("secureConnect", () => tls.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }

  get isReady(): boolean {
    return this.#held !== undefined && this.#held.length > 0;
  }

  get isClosed(): boolean {
    return this.#raw.closed;
  }

  /** Sends what is held, without the last `withheld` bytes. */
  goOn(withheld = 0): void {
    const held = Buffer.concat(this.#held ?? []);
    this.#held = undefined;
    this.#raw.write(held.subarray(0, held.length - withheld));
  }

  destroy(): void {
    this.#raw.destroy();
  }
}
