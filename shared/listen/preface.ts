import type { Socket } from "node:net";
import { GrowingBytes } from "../basics/bytes.ts";
import { type ClientHello, ClientHelloReader } from "./client-hello.ts";
import { type Endpoint, readProxyHeader } from "./proxy-protocol.ts";

/** What a client and the balancers before it have said before TLS, or why nobody can go on. */
export type Preface =
  | { readonly problem: string; readonly beforeTls: boolean }
  | {
      readonly problem?: undefined;
      /** Who is behind the balancer, if it has said so. */
      readonly source: Endpoint | undefined;
      /** Absent where names were not asked for. */
      readonly hello: FoundHello | undefined;
    };

/** A ClientHello that could be read. */
export type FoundHello = Extract<ClientHello, { problem: undefined }>;

export interface PrefaceOptions {
  /** What may or must stand in front: `forbidden` is for addresses whose word is not believed. */
  readonly proxyHeader: "ignored" | "forbidden" | "optional" | "required";
  /** Read the name in the ClientHello, too. */
  readonly name: boolean;
}

/** Reads what stands before TLS: a PROXY header (haproxy's proxy-protocol.txt), then the ClientHello. Pure. */
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
  push(chunk: Buffer): FirstBytes<Preface> | undefined {
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

  #readHello(chunk: Buffer): FirstBytes<Preface> | undefined {
    const consumed = this.#headerLength ?? 0;
    if (!this.#options.name) return { found: { source: this.#source, hello: undefined }, consumed };
    const hello = this.#hello.push(chunk);
    if (hello === undefined) return undefined;
    if (hello.problem !== undefined) return { found: { problem: hello.problem, beforeTls: false }, consumed };
    return { found: { source: this.#source, hello }, consumed };
  }

  #problem(problem: string): FirstBytes<Preface> {
    return { found: { problem, beforeTls: true }, consumed: 0 };
  }
}

/** What a reader of first bytes has made of them. */
export interface FirstBytes<T> {
  readonly found: T;
  /** Bytes in front that were meant for the reader alone: they are not given back. */
  readonly consumed: number;
}

export interface ReadFirstOptions<T> {
  /** Given every chunk once, in order; `undefined`: more is needed. */
  readonly reader: (chunk: Buffer) => FirstBytes<T> | undefined;
  readonly timeoutMs: number;
  /** The socket is paused, and all but the consumed bytes are in front of what it will deliver. */
  onFound(found: T): void;
  /** It took too long; the socket is paused. */
  onLate(): void;
}

/**
 * Reads the first bytes of a connection and gives them back, so that whoever comes next finds it as if nobody had read.
 * A socket that ends meanwhile says so by its own `close`.
 */
export function readFirst<T>(raw: Socket, { reader, timeoutMs, onFound, onLate }: ReadFirstOptions<T>): void {
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
