import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";

// Answers of a SOCKS 5 proxy (RFC 1928, RFC 1929), in hex.
export const NO_AUTH = "0500";
export const USER_AUTH = "0502";
export const AUTHENTICATED = "0100";
/** The reply to a request, with the address that the proxy has bound. */
export const reply = (code: number) => `05${code.toString(16).padStart(2, "0")}0001 00000000 0000`;

export function hex(plain: string): string {
  return Buffer.from(plain).toString("hex");
}

export function length(plain: string): string {
  return Buffer.byteLength(plain).toString(16).padStart(2, "0");
}

/** A proxy that runs a script on each connection; `done` is the first one's. */
export async function scripted(t: TestContext, script: (peer: Peer) => Promise<void>) {
  let done: (outcome: Promise<void>) => void = () => {};
  const outcome = new Promise<void>((resolve) => {
    done = resolve;
  });
  const server = createServer({ noDelay: true }, (socket) => {
    t.after(() => socket.destroy());
    const running = script(new Peer(socket));
    running.catch(() => socket.destroy());
    done(running);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const close = async (): Promise<void> => {
    server.close();
    await once(server, "close");
  };
  return { host: "127.0.0.1", port, at: `socks5h://127.0.0.1:${port}`, done: outcome, close };
}

/** One connection of the scripted proxy; bytes are hex. */
export class Peer {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #changed: () => void = () => {};

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#changed();
    });
  }

  async read(bytes: number): Promise<string> {
    while (this.#received.length < bytes) await this.#change();
    const read = this.#received.subarray(0, bytes);
    this.#received = this.#received.subarray(bytes);
    return read.toString("hex");
  }

  async readSome(): Promise<void> {
    await this.read(1);
    this.#received = Buffer.alloc(0);
  }

  async readRequest(): Promise<void> {
    const name = Number.parseInt((await this.read(5)).slice(-2), 16);
    await this.read(name + 2);
  }

  /** Reads greeting and request of a client without a password, up to the reply. */
  async readRequestWithoutLogin(): Promise<void> {
    await this.read(3);
    this.write(NO_AUTH);
    await this.readRequest();
  }

  /** Asks for a password (RFC 1929), and gives `user:password`. */
  async readLogin(): Promise<string> {
    await this.read(4);
    this.write(USER_AUTH);
    await this.read(1);
    const text = async () => Buffer.from(await this.read(Number.parseInt(await this.read(1), 16)), "hex").toString();
    return `${await text()}:${await text()}`;
  }

  write(bytes: string): void {
    this.#socket.write(Buffer.from(bytes.replaceAll(" ", ""), "hex"));
  }

  /** In a segment of its own. */
  async writeAlone(bytes: string): Promise<void> {
    this.write(bytes);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }

  end(): void {
    this.#socket.end();
  }

  async ended(): Promise<void> {
    if (!this.#socket.destroyed) await once(this.#socket, "close");
  }

  /** Somebody else goes on with the connection. */
  handOver(): Socket {
    this.#socket.removeAllListeners("data");
    this.#socket.pause();
    if (this.#received.length > 0) this.#socket.unshift(this.#received);
    return this.#socket;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#changed = resolve;
    });
  }
}
