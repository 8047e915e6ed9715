import { canonicalServerName } from "../address/server-name.ts";
import { GrowingBytes } from "../basics/bytes.ts";

/** The name that the client asks for, if any, or the reason why the ClientHello cannot be read. */
export type ClientHello =
  | { readonly problem: undefined; readonly serverName: string | undefined }
  | { readonly problem: string; readonly serverName?: undefined };

/** Maximum length of a ClientHello with its record headers. Usual ones have 200 to 2,000 bytes. */
export const MAX_CLIENT_HELLO = 16_384;

/** The answer to an unknown server name: the fatal alert 112 in a record of its own (RFC 8446 §5.1, §6). */
export const UNRECOGNIZED_NAME_ALERT: Buffer = Buffer.from([21, 3, 3, 0, 2, 2, 112]);

const RECORD_HEADER = 5;
const MAX_FRAGMENT = 16_384;
export const HANDSHAKE_RECORD = 22;
const MESSAGE_HEADER = 4;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;

const NOT_TLS = "it does not begin as TLS does";
const TOO_LONG = `its ClientHello is longer than ${MAX_CLIENT_HELLO} bytes`;
const MALFORMED = "its ClientHello is malformed";

/**
 * Reads the server name from the first bytes of a TLS connection (RFC 8446 §4.1.2, RFC 6066 §3), in any number of
 * segments, records and fragments. Work and memory depend on the bytes received, never on a length that they claim.
 *
 * ```
 *  segments ──▶ records: type 22, version 3.x, length ──▶ one handshake message: type 1, length ──▶ extensions ──▶ name
 * ```
 *
 * It also refuses a ClientHello that OpenSSL accepts, if another reader could find another name in it.
 */
export class ClientHelloReader {
  readonly #message = new GrowingBytes();
  readonly #header = Buffer.alloc(RECORD_HEADER);
  #headerLength = 0;
  /** Bytes of the record's fragment that have not arrived. */
  #missing = 0;
  #taken = 0;
  #hello: ClientHello | undefined;

  /** Reads the next chunk. Returns `undefined` if more is needed. Bytes after the ClientHello change nothing. */
  push(chunk: Buffer): ClientHello | undefined {
    const end = Math.min(chunk.length, MAX_CLIENT_HELLO - this.#taken);
    let at = 0;
    while (this.#hello === undefined && at < end) {
      at = this.#missing > 0 ? this.#readFragment(chunk, at, end) : this.#readHeader(chunk, at);
    }
    this.#taken += at;
    if (this.#taken >= MAX_CLIENT_HELLO) this.#hello ??= problem(TOO_LONG);
    return this.#hello;
  }

  #readHeader(chunk: Buffer, at: number): number {
    this.#header[this.#headerLength++] = chunk[at] ?? 0;
    const [type, major] = this.#header;
    if (type !== HANDSHAKE_RECORD || (this.#headerLength >= 2 && major !== 3)) this.#hello = problem(NOT_TLS);
    if (this.#headerLength < RECORD_HEADER) return at + 1;
    this.#headerLength = 0;
    this.#missing = this.#header.readUInt16BE(3);
    // RFC 8446 §5.1: a fragment of a handshake message must not be empty.
    if (this.#missing === 0 || this.#missing > MAX_FRAGMENT) this.#hello ??= problem(MALFORMED);
    return at + 1;
  }

  #readFragment(chunk: Buffer, at: number, most: number): number {
    const end = Math.min(most, at + this.#missing);
    this.#missing -= end - at;
    this.#message.append(chunk.subarray(at, end));
    this.#hello = this.#readMessage();
    return end;
  }

  #readMessage(): ClientHello | undefined {
    const { bytes } = this.#message;
    if (bytes[0] !== CLIENT_HELLO) return problem("it begins with another TLS message than a ClientHello");
    if (bytes.length < MESSAGE_HEADER) return undefined;
    const end = MESSAGE_HEADER + bytes.readUIntBE(1, 3);
    if (end > MAX_CLIENT_HELLO) return problem(TOO_LONG);
    return bytes.length < end ? undefined : helloOf(bytes.subarray(MESSAGE_HEADER, end));
  }
}

function helloOf(body: Buffer): ClientHello {
  try {
    const names = serverNames(extensionsOf(body));
    if (names === undefined) return { problem: undefined, serverName: undefined };
    const [first, second] = names;
    if (first === undefined) return problem("its list of server names is empty");
    if (second !== undefined) return problem("it asks for two server names");
    const { name, fault } = canonicalServerName(textOf(first));
    return fault === undefined ? { problem: undefined, serverName: name } : problem(`its server name ${fault}`);
  } catch (error) {
    if (error instanceof Malformed) return problem(error.message);
    throw error;
  }
}

/** The extensions by type. TLS 1.2 allows a ClientHello without any. */
function extensionsOf(body: Buffer): Map<number, Cursor> {
  const hello = new Cursor(body);
  hello.take(2 + 32); // legacy_version, random
  hello.vector(1); // legacy_session_id
  hello.vector(2); // cipher_suites
  hello.vector(1); // legacy_compression_methods
  const extensions = new Map<number, Cursor>();
  if (hello.done) return extensions;
  const list = hello.vector(2);
  if (!hello.done) throw new Malformed(MALFORMED);
  while (!list.done) {
    const type = list.number(2);
    const content = list.vector(2);
    // RFC 8446 §4.2 forbids it: with two names, one reader would take the first and another the second.
    if (extensions.has(type)) throw new Malformed("its ClientHello has the same extension twice");
    extensions.set(type, content);
  }
  return extensions;
}

/** The host names that the client asks for; `undefined` without the extension. */
function serverNames(extensions: Map<number, Cursor>): Buffer[] | undefined {
  const extension = extensions.get(SERVER_NAME);
  if (extension === undefined) return undefined;
  const list = extension.vector(2);
  if (!extension.done) throw new Malformed(MALFORMED);
  const names: Buffer[] = [];
  while (!list.done) {
    if (list.number(1) !== HOST_NAME) throw new Malformed("its server name is of an unknown type");
    names.push(list.vector(2).rest());
  }
  return names;
}

/** Decodes a name. RFC 6066 allows only ASCII; UTF-8 is decoded, too, and becomes its ASCII name. */
function textOf(name: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(name);
  } catch {
    throw new Malformed("its server name is neither ASCII nor UTF-8");
  }
}

function problem(sentence: string): ClientHello {
  return { problem: sentence };
}

class Malformed extends Error {}

/** Reads a message from its start, and never beyond its end. */
class Cursor {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at === this.#bytes.length;
  }

  take(length: number): Buffer {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new Malformed(MALFORMED);
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  number(width: 1 | 2): number {
    return this.take(width).readUIntBE(0, width);
  }

  /** Reads a vector of variable length (RFC 8446 §3.4): its length in `width` bytes, then its content. */
  vector(width: 1 | 2): Cursor {
    return new Cursor(this.take(this.number(width)));
  }

  rest(): Buffer {
    return this.take(this.#bytes.length - this.#at);
  }
}
