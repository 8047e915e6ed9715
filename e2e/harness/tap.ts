import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { CallerListener } from "./caller.ts";
import { peerEnd } from "./peer-end.ts";
import { listenOnLoopback } from "./targets/tcp.ts";

/** Stands before a TCP listener for one connection, and shows the bytes beneath TLS that the listener sends. */
export class Tap implements AsyncDisposable {
  readonly #behind: { readonly host: string; readonly port: number };
  readonly #server: Server;
  /** The caller's side. */
  front: Socket | undefined;
  /** The listener's side. */
  back: Socket | undefined;
  /** Bytes that the listener has sent. */
  received = 0;
  /** How the listener ended the connection. */
  readonly ended: Promise<string>;
  #onEnded: (how: Promise<string>) => void = () => {};

  constructor(behind: { readonly host: string; readonly port: number }) {
    this.#behind = behind;
    this.ended = new Promise((resolve) => {
      this.#onEnded = resolve;
    });
    this.#server = createServer({ allowHalfOpen: true, noDelay: true });
    this.#server.on("connection", (front) => this.#relay(front));
  }

  listen(): Promise<void> {
    return listenOnLoopback(this.#server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.front?.destroy();
    this.back?.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #relay(front: Socket): void {
    const back = connect({ ...this.#behind, allowHalfOpen: true, noDelay: true });
    this.front = front;
    this.back = back;
    this.#onEnded(peerEnd(back));
    front.on("error", () => back.resetAndDestroy());
    back.on("error", () => front.resetAndDestroy());
    back.on("data", (chunk: Buffer) => {
      this.received += chunk.length;
    });
    front.pipe(back);
    back.pipe(front);
  }
}

/** A tap before a listener, and where callers reach it. */
export async function tapBefore(listener: CallerListener): Promise<{ tap: Tap; listener: CallerListener }> {
  if ("path" in listener) throw new Error("a unix socket has no bytes beneath TLS");
  const tap = new Tap(listener);
  await tap.listen();
  return { tap, listener: { ...listener, port: tap.port } };
}
