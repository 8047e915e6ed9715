import type { Socket } from "node:net";
import { GrowingBytes } from "../basics/bytes.ts";
import { type ClientHello, ClientHelloReader } from "./client-hello.ts";
import { type Endpoint, readProxyHeader } from "./proxy-protocol.ts";

/** What a client and the balancers before it send before TLS, or why it is refused. */
export type Preface =
  | { readonly problem: string; readonly beforeTls: boolean }
  | {
      readonly problem?: undefined;
      /** The client behind the balancer, if a PROXY header names one. */
      readonly source: Endpoint | undefined;
      /** Absent where the name is not read. */
      readonly hello: FoundHello | undefined;
    };

/** A ClientHello that could be read. */
export type FoundHello = Extract<ClientHello, { problem: undefined }>;

export interface PrefaceOptions {
  /** Whether a PROXY header may or must come; `forbidden`: the address is not trusted to send one. */
  readonly proxyHeader: "ignored" | "forbidden" | "optional" | "required";
  /** Read the name in the ClientHello as well. */
  readonly name: boolean;
}

/** Reads a PROXY header (haproxy's proxy-protocol.txt), then the ClientHello, from any number of chunks. */
export class PrefaceReader {
  readonly #options: PrefaceOptions;
  readonly #front = new GrowingBytes();
  readonly #hello = new ClientHelloReader();
  #headerLength: number | undefined;
  #source: Endpoint | undefined;

  constructor(options: PrefaceOptions) {
    this.#options = options;
    if (options.proxyHeader === "ignored") this.#headerLength = 0;
  }

  /** Takes what comes next; `undefined`: more is needed. */
  push(chunk: Buffer): Peeked<Preface> | undefined {
    if (this.#headerLength !== undefined) return this.#readHello(chunk);
    this.#front.append(chunk);
    const reading = readProxyHeader(this.#front.bytes);
    const { proxyHeader } = this.#options;
    if (reading.state === "more") return undefined;
    if (reading.state === "refused") return this.#problem(reading.problem);
    if (reading.state === "absent") {
      if (proxyHeader === "required") return this.#problem("it brings no PROXY header, and one is required here");
      this.#headerLength = 0;
      return this.#readHello(this.#front.bytes);
    }
    if (proxyHeader === "forbidden")
      return this.#problem("it brings a PROXY header, and its address is not trusted to");
    this.#headerLength = reading.bytesUsed;
    this.#source = reading.connection?.source;
    return this.#readHello(this.#front.bytes.subarray(reading.bytesUsed));
  }

  #readHello(chunk: Buffer): Peeked<Preface> | undefined {
    const consumed = this.#headerLength ?? 0;
    if (!this.#options.name) return { found: { source: this.#source, hello: undefined }, consumed };
    const hello = this.#hello.push(chunk);
    if (hello === undefined) return undefined;
    if (hello.problem !== undefined) return { found: { problem: hello.problem, beforeTls: false }, consumed };
    return { found: { source: this.#source, hello }, consumed };
  }

  #problem(problem: string): Peeked<Preface> {
    return { found: { problem, beforeTls: true }, consumed: 0 };
  }
}

/** What a reader has found in the first bytes of a connection. */
export interface Peeked<T> {
  readonly found: T;
  /** The number of bytes in front that are not given back. */
  readonly consumed: number;
}

export interface PeekOptions<T> {
  /** Called with every chunk once, in order; `undefined`: more is needed. */
  readonly reader: (chunk: Buffer) => Peeked<T> | undefined;
  readonly timeoutMs: number;
  /** The socket is paused, and all but the consumed bytes are in front of what it will deliver. */
  onFound(found: T): void;
  /** The time is over; the socket is paused. */
  onLate(): void;
}

/**
 * Reads the first bytes of a connection and gives them back to the socket. A socket that ends meanwhile emits `close`.
 */
export function peek<T>(raw: Socket, { reader, timeoutMs, onFound, onLate }: PeekOptions<T>): void {
  const bytes = new GrowingBytes();
  const timer = setTimeout(() => {
    release();
    onLate();
  }, timeoutMs);
  raw.on("data", onData);
  raw.on("close", release);
  raw.resume();

  function onData(chunk: Buffer): void {
    bytes.append(chunk);
    const result = reader(chunk);
    if (result === undefined) return;
    release();
    const rest = bytes.bytes.subarray(result.consumed);
    if (rest.length > 0) raw.unshift(rest);
    onFound(result.found);
  }

  function release(): void {
    clearTimeout(timer);
    raw.off("data", onData);
    raw.off("close", release);
    raw.pause();
  }
}
