import { duplexPair } from "node:stream";
import { type ConnectionOptions, connect } from "node:tls";

/** The parts of a ClientHello that tests vary; absent parts are as usual. */
export interface HelloParts {
  /** The entries of the list in the server_name extension; absent: no such extension. */
  readonly names?: readonly (string | Buffer)[];
  readonly nameType?: number;
  /** Further extensions, before the others. */
  readonly extensions?: readonly Buffer[];
  /** Bytes after the extensions. */
  readonly trailer?: Buffer;
}

/** A ClientHello message, without record headers. */
export function helloMessage({ names, nameType = 0, extensions = [], trailer = Buffer.alloc(0) }: HelloParts): Buffer {
  const all = [...extensions, extension(10, Buffer.from([0, 2, 0, 29]))];
  if (names !== undefined) {
    const entries = names.map((name) => Buffer.concat([Buffer.from([nameType]), vector(2, Buffer.from(name))]));
    all.push(extension(0, vector(2, Buffer.concat(entries))));
  }
  const body = Buffer.concat([
    ...[Buffer.from([3, 3]), Buffer.alloc(32, 7), vector(1, Buffer.alloc(32, 9))],
    ...[vector(2, Buffer.from([0x13, 1, 0x13, 2])), vector(1, Buffer.from([0]))],
    ...[vector(2, Buffer.concat(all)), trailer],
  ]);
  return Buffer.concat([Buffer.from([1]), vector(3, body)]);
}

export function extension(type: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([type >> 8, type & 255]), vector(2, content)]);
}

/** Puts a message into records with at most `size` bytes each. */
export function inRecords(message: Buffer, size = 16_384): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    records.push(Buffer.from([22, 3, 1]), vector(2, message.subarray(at, at + size)));
  }
  return Buffer.concat(records);
}

/** A usual ClientHello, in one record. */
export function helloFor(name: string | undefined): Buffer {
  return inRecords(helloMessage(name === undefined ? {} : { names: [name] }));
}

/** The first bytes that Node's TLS client sends. */
export function nodeHello(options: ConnectionOptions): Promise<Buffer> {
  const [near, far] = duplexPair();
  const socket = connect({ ...options, socket: near });
  socket.on("error", () => {});
  return new Promise((resolve) => {
    far.once("data", (hello: Buffer) => {
      resolve(hello);
      socket.destroy();
      far.destroy();
    });
  });
}

function vector(width: 1 | 2 | 3, content: Buffer): Buffer {
  const length = Buffer.alloc(width);
  length.writeUIntBE(content.length, 0, width);
  return Buffer.concat([length, content]);
}
