import { isIPv4, isIPv6, type Socket } from "node:net";
import { addressBytes, canonicalAddress } from "../address/network.ts";
import { GrowingBytes } from "../basics/bytes.ts";
import type { HeldBytes } from "../limits/memory-account.ts";
import { type ClientHello, ClientHelloReader } from "./client-hello.ts";

/** The preface that a client and its balancer send before TLS, or the reason why the client is refused. */
export type Preface =
  | { readonly problem: string; readonly beforeTls: boolean }
  | {
      readonly problem?: undefined;
      /** The length of the PROXY header. */
      readonly headerLength: number;
      /** The client behind the balancer, if a PROXY header names one. */
      readonly source: Endpoint | undefined;
      /** Absent if the name is not read. */
      readonly hello: FoundHello | undefined;
    };

/** A ClientHello that could be read. */
export type FoundHello = Extract<ClientHello, { problem: undefined }>;

export interface PrefaceOptions {
  /** Whether a PROXY header may or must come. `forbidden`: the address is not trusted to send one. */
  readonly proxyHeader: "ignored" | "forbidden" | "optional" | "required";
  /** Whether the name in the ClientHello is read as well. */
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

  /** Reads the next chunk. Returns `undefined` if more is needed. */
  push(chunk: Buffer): Preface | undefined {
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

  #readHello(chunk: Buffer): Preface | undefined {
    const front = { headerLength: this.#headerLength ?? 0, source: this.#source };
    if (!this.#options.name) return { ...front, hello: undefined };
    const hello = this.#hello.push(chunk);
    if (hello === undefined) return undefined;
    return hello.problem === undefined ? { ...front, hello } : { problem: hello.problem, beforeTls: false };
  }

  #problem(problem: string): Preface {
    return { problem, beforeTls: true };
  }
}

/** Number of bytes after which reading stops. Every ClientHello is shorter. Later bytes stay in the kernel. */
const ENOUGH_BYTES = 16_384;

/**
 * The first bytes of a connection. They are read while the connection waits, because only a reader notices that the
 * client has closed it, and are given back when its turn comes.
 */
export class FirstBytes {
  readonly #raw: Socket;
  readonly #onChunk: (chunk: Buffer) => void;
  readonly #held: HeldBytes | undefined;
  readonly #read = new GrowingBytes();
  #skipped = 0;

  /** Begins to read. The socket must have an error listener. `held` counts the bytes until `stop` or `giveBack`. */
  constructor(raw: Socket, onChunk: (chunk: Buffer) => void, held?: HeldBytes) {
    this.#raw = raw;
    this.#onChunk = onChunk;
    this.#held = held;
    raw.on("data", this.#onData);
    raw.resume();
  }

  get length(): number {
    return this.#read.length;
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#read.append(chunk);
    this.#held?.add(chunk.length);
    if (this.#read.length >= ENOUGH_BYTES) this.#raw.pause();
    this.#onChunk(chunk);
  };

  /** Sets how many bytes at the front are not given back: the length of the PROXY header. */
  skip(length: number): void {
    this.#skipped = length;
  }

  stop(): void {
    this.#held?.clear();
    this.#raw.off("data", this.#onData);
  }

  /** Stops reading. The socket is paused, and will deliver all bytes that are not skipped. */
  giveBack(): void {
    this.stop();
    this.#raw.pause();
    const rest = this.#read.bytes.subarray(this.#skipped);
    if (rest.length > 0) this.#raw.unshift(rest);
  }
}

// ── the PROXY header ────────────────────────────────────────────────────────────────────────────────────────────────

/** One end of a connection. */
export interface Endpoint {
  /** An address without brackets or zone. An IPv4 address that came as IPv6 (`::ffff:…`) is written as IPv4. */
  readonly address: string;
  readonly port: number;
}

/** The connection that a balancer has accepted and passes on. */
export interface ProxiedConnection {
  readonly source: Endpoint;
  readonly destination: Endpoint;
}

/**
 * The result of reading the first bytes: a header (`read`), none (`absent`), one that is not complete (`more`), or one
 * that cannot be used. `connection` is absent for a balancer's own health check (LOCAL), for a client that it does not
 * know (UNKNOWN, UNSPEC), and for one that has reached it by UDP or a unix socket: the connection's own address counts.
 */
export type ProxyReading =
  | { readonly state: "more" }
  | { readonly state: "absent" }
  | { readonly state: "refused"; readonly problem: string }
  | { readonly state: "read"; readonly connection: ProxiedConnection | undefined; readonly bytesUsed: number };

/**
 * Maximum length of a header of version 2 after its first 16 bytes: addresses of at most 36 bytes, and TLVs, which are
 * not read.
 */
export const MAX_V2_CONTENT = 2_048;
/** Maximum length of a header of version 1, with its line end. */
const MAX_V1 = 107;

const V1 = Buffer.from("PROXY ");
const V2 = Buffer.from([0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]);
const V2_HEADER = 16;
const LOCAL = 0x20;
const PROXY = 0x21;
/** Length of an address in version 2 whose client is known by it: TCP over IPv4, TCP over IPv6. */
const V2_ADDRESS_LENGTH = new Map([
  [0x11, 4],
  [0x21, 16],
]);
const V2_UNSPECIFIED = 0;
/** Length of the addresses of other families, which name no client: UDP over IPv4 and IPv6, unix sockets. */
const V2_OTHER_LENGTH = new Map([
  [V2_UNSPECIFIED, 0],
  [0x12, 2 * 4 + 4],
  [0x22, 2 * 16 + 4],
  [0x31, 2 * 108],
  [0x32, 2 * 108],
]);
/** Prefix of an IPv4 address that is sent as an IPv6 address (RFC 4291 §2.5.5.2). */
const MAPPED = Buffer.from([...new Array<number>(10).fill(0), 0xff, 0xff]);

const MORE = { state: "more" } as const;
const ABSENT = { state: "absent" } as const;

/**
 * Reads the header that a balancer sends first on a connection (haproxy's proxy-protocol.txt, sections 2.1 and 2.2).
 * `bytes` are all that have arrived so far. TLS begins with another byte, so one byte is enough for `absent`.
 */
export function readProxyHeader(bytes: Buffer): ProxyReading {
  if (beginsWith(bytes, V1)) return bytes.length < V1.length ? MORE : readV1(bytes);
  if (beginsWith(bytes, V2)) return bytes.length < V2_HEADER ? MORE : readV2(bytes);
  return ABSENT;
}

/** Encodes a header of version 2; without a connection the command is LOCAL. */
export function encodeProxyV2(connection: ProxiedConnection | undefined): Buffer {
  if (connection === undefined) return Buffer.concat([V2, Buffer.from([LOCAL, V2_UNSPECIFIED, 0, 0])]);
  const source = canonicalAddress(connection.source.address);
  const destination = canonicalAddress(connection.destination.address);
  const isV4 = isIPv4(source) && isIPv4(destination);
  const addressLength = isV4 ? 4 : 16;
  const content = Buffer.alloc(2 * addressLength + 4);
  content.set(encodeAddress(source, isV4));
  content.set(encodeAddress(destination, isV4), addressLength);
  content.writeUInt16BE(connection.source.port, 2 * addressLength);
  content.writeUInt16BE(connection.destination.port, 2 * addressLength + 2);
  return Buffer.concat([V2, Buffer.from([PROXY, isV4 ? 0x11 : 0x21, 0, content.length]), content]);
}

function beginsWith(bytes: Buffer, prefix: Buffer): boolean {
  const length = Math.min(bytes.length, prefix.length);
  return bytes.compare(prefix, 0, length, 0, length) === 0;
}

function readV1(bytes: Buffer): ProxyReading {
  const end = bytes.subarray(0, MAX_V1).indexOf("\n");
  if (end < 0) return bytes.length < MAX_V1 ? MORE : refused(`its first line is longer than ${MAX_V1} bytes`);
  if (bytes[end - 1] !== 0x0d) return refused("its first line does not end with CR and LF");
  const bytesUsed = end + 1;
  const [, family, ...words] = bytes.toString("latin1", 0, end - 1).split(" ");
  // Section 2.1: a receiver ignores everything after UNKNOWN.
  if (family === "UNKNOWN") return { state: "read", connection: undefined, bytesUsed };
  if (family !== "TCP4" && family !== "TCP6") return refused("it names no family that is known: TCP4, TCP6, UNKNOWN");
  const [source = "", destination = "", sourcePort, destinationPort, ...rest] = words;
  const isAddress = family === "TCP4" ? isIPv4 : (text: string) => isIPv6(text) && !text.includes("%");
  const ports = [parsePort(sourcePort), parsePort(destinationPort)] as const;
  if (rest.length > 0 || !isAddress(source) || !isAddress(destination)) return refused("its addresses are none");
  if (ports[0] === undefined || ports[1] === undefined) return refused("its ports are none");
  return {
    state: "read",
    bytesUsed,
    connection: {
      source: { address: canonicalAddress(source), port: ports[0] },
      destination: { address: canonicalAddress(destination), port: ports[1] },
    },
  };
}

function readV2(bytes: Buffer): ProxyReading {
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const length = bytes.readUInt16BE(14);
  if (command >> 4 !== 2) return refused(`it is of version ${command >> 4}, and 1 and 2 are known`);
  if (command !== LOCAL && command !== PROXY) return refused(`its command ${command & 15} is not known`);
  if (length > MAX_V2_CONTENT) return refused(`it is ${length} bytes long, and at most ${MAX_V2_CONTENT} are read`);
  const addressLength = command === LOCAL ? undefined : V2_ADDRESS_LENGTH.get(family);
  const needed = addressLength === undefined ? V2_OTHER_LENGTH.get(family) : 2 * addressLength + 4;
  if (command === PROXY && needed === undefined) return refused(`its family 0x${family.toString(16)} is not known`);
  if (command === PROXY && length < (needed ?? 0)) return refused("it is too short for its addresses");
  const bytesUsed = V2_HEADER + length;
  if (bytes.length < bytesUsed) return MORE;
  if (addressLength === undefined) return { state: "read", connection: undefined, bytesUsed };
  const ports = V2_HEADER + 2 * addressLength;
  const endpoint = (index: 0 | 1): Endpoint => {
    const at = V2_HEADER + index * addressLength;
    return {
      address: addressText(bytes.subarray(at, at + addressLength)),
      port: bytes.readUInt16BE(ports + 2 * index),
    };
  };
  return { state: "read", connection: { source: endpoint(0), destination: endpoint(1) }, bytesUsed };
}

function refused(problem: string): ProxyReading {
  return { state: "refused", problem: `its PROXY header cannot be used: ${problem}` };
}

function parsePort(text: string | undefined): number | undefined {
  if (text === undefined || !/^(?:0|[1-9]\d{0,4})$/.test(text)) return undefined;
  const port = Number(text);
  return port > 65_535 ? undefined : port;
}

function addressText(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(2 * index).toString(16));
  return canonicalAddress(groups.join(":"));
}

function encodeAddress(address: string, asV4: boolean): Uint8Array {
  const bytes = addressBytes(address);
  return asV4 || bytes.length === 16 ? bytes : Buffer.concat([MAPPED, bytes]);
}
