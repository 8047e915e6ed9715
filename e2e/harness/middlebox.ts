import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { connect, createServer, type Server, type TLSSocket } from "node:tls";
import { Authority } from "../../shared/pki/certificates.ts";

/** One connection through a middle box: TLS to each side, and all that it has read. */
export interface Opened {
  readonly near: TLSSocket;
  readonly far: TLSSocket;
  /** From the agent, and from the server, as they were without TLS. */
  readonly sent: Buffer[];
  readonly answered: Buffer[];
}

/** Where a habit puts what it lets through, or makes up. */
export interface Sides {
  readonly toServer: (bytes: Buffer) => void;
  readonly toAgent: (bytes: Buffer) => void;
}

/** The behaviour of a box towards the bytes of one connection, instead of passing them on. */
export interface MiddleboxBehaviour {
  fromAgent(bytes: Buffer, sides: Sides): void;
  fromServer(bytes: Buffer, sides: Sides): void;
  /** The connection has ended. */
  stop?(): void;
}

/** A box that opens TLS under a CA of its own, as companies have them, and reads all that passes. */
export class Middlebox implements AsyncDisposable {
  readonly authority: Authority;
  readonly opened: Opened[] = [];
  /** Client certificates that it was shown; it asks for them. */
  readonly shown: string[] = [];
  /** The certificate that it shows to the server in the agent's place. */
  clientTls: { readonly cert?: string; readonly key?: string } = {};
  /** Its behaviour towards connections, each by its number from 1; `undefined`: it only reads. */
  habit: (connection: number) => MiddleboxBehaviour | undefined = () => undefined;
  readonly #server: Server;

  private constructor(authority: Authority, server: Server) {
    this.authority = authority;
    this.#server = server;
  }

  /** Before the server on this port of this machine. */
  static async start(port: number): Promise<Middlebox> {
    const authority = await Authority.create("Corp Inspection CA");
    const leaf = await authority.issue({ cn: "127.0.0.1", names: ["127.0.0.1", "localhost"], usage: "server" });
    const server = createServer({ ...leaf, requestCert: true, rejectUnauthorized: false });
    const box = new Middlebox(authority, server);
    server.on("secureConnection", (near) => box.#open(near, port));
    server.on("tlsClientError", () => {});
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return box;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** All that it has read, of all connections. */
  get read(): Buffer {
    return Buffer.concat(this.opened.flatMap(({ sent, answered }) => [...sent, ...answered]));
  }

  /** A connection of its own to the server. */
  dial(port: number): TLSSocket {
    return connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ...this.clientTls }).on("error", () => {});
  }

  /** Ends every connection that goes through it now. */
  cut(): void {
    for (const { near, far } of this.opened) for (const socket of [near, far]) socket.destroy();
  }

  #open(near: TLSSocket, port: number): void {
    const subject = near.getPeerCertificate().subject;
    if (subject !== undefined) this.shown.push(String(subject.CN));
    const far = this.dial(port);
    const opened: Opened = { near, far, sent: [], answered: [] };
    this.opened.push(opened);
    const habit = this.habit(this.opened.length) ?? PASSES_ON;
    const sides: Sides = { toServer: (bytes) => far.write(bytes), toAgent: (bytes) => near.write(bytes) };
    near.on("data", (chunk: Buffer) => {
      opened.sent.push(chunk);
      habit.fromAgent(Buffer.from(chunk), sides);
    });
    far.on("data", (chunk: Buffer) => {
      opened.answered.push(chunk);
      habit.fromServer(Buffer.from(chunk), sides);
    });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on("error", () => to.destroy());
      from.on("close", () => {
        habit.stop?.();
        to.destroySoon();
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }
}

const PASSES_ON: MiddleboxBehaviour = {
  fromAgent: (bytes, { toServer }) => toServer(bytes),
  fromServer: (bytes, { toAgent }) => toAgent(bytes),
};

/** The WebSocket messages in what one side has sent behind its header, unmasked (RFC 6455 §5.2). */
export function messagesIn(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = [];
  let at = bytes.indexOf("\r\n\r\n") + 4;
  while (at + 2 <= bytes.length) {
    const masked = ((bytes[at + 1] ?? 0) & 0x80) !== 0;
    const short = (bytes[at + 1] ?? 0) & 0x7f;
    const [length, skip] =
      short === 126 ? [bytes.readUInt16BE(at + 2), 4] : short === 127 ? [bytes.readUInt32BE(at + 6), 10] : [short, 2];
    const begin = at + skip + (masked ? 4 : 0);
    const mask = bytes.subarray(at + skip, begin);
    const payload = Buffer.from(bytes.subarray(begin, begin + length));
    if (masked) for (let i = 0; i < payload.length; i++) payload[i] = (payload[i] ?? 0) ^ (mask[i % 4] ?? 0);
    messages.push(payload);
    at = begin + length;
  }
  return messages;
}
