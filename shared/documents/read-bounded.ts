import { closeSync, constants, fstatSync, openSync, promises, readSync, type Stats } from "node:fs";
import { untilAborted } from "../basics/promises.ts";

/**
 * Maximum size of a file that an option or a document names, bytes. ConfigMaps and Secrets have at most 1 MiB; CA
 * bundles with text dumps and long CRLs may be larger.
 */
export const MAX_FILE_BYTES = 4 * 1_048_576;

/** The file is larger than its reader allows. The message is `it is larger than 4 MiB`. */
export class FileTooLargeError extends Error {
  override readonly name = "FileTooLargeError";

  constructor(maxBytes: number) {
    super(`it is larger than ${maxBytes < 1_048_576 ? `${maxBytes / 1024} KiB` : `${maxBytes / 1_048_576} MiB`}`);
  }
}

/** O_NONBLOCK, because opening a pipe would wait for its other end. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Reads a file whose path comes from a user. Only a regular file is read (links are followed), and only if it is not
 * larger than `maxBytes`. Throws Node's error, or one whose message continues "cannot be read: ".
 */
export function readBoundedSync(path: string, maxBytes = MAX_FILE_BYTES): Buffer {
  const file = openSync(path, FLAGS);
  try {
    const stat = fstatSync(file);
    let room = roomFor(stat, maxBytes);
    for (let filled = 0; ; ) {
      const bytesRead = readSync(file, room, filled, room.length - filled, null);
      filled += bytesRead;
      if (bytesRead === 0) return room.subarray(0, filled);
      if (filled === room.length) room = larger(room, stat, maxBytes);
    }
  } finally {
    closeSync(file);
  }
}

/** The text of a file, as `readBoundedSync`. Throws a sentence about `name`, which is the path or ends with it. */
export function readTextSync(path: string, name = path): string {
  try {
    return readBoundedSync(path).toString("utf8");
  } catch (error) {
    throw new Error(`${name} cannot be read: ${readFailure(error)}`, { cause: error });
  }
}

/** As `readBoundedSync`, without blocking the event loop. */
export async function readBounded(path: string, maxBytes = MAX_FILE_BYTES): Promise<Buffer> {
  await using file = await promises.open(path, FLAGS);
  const stat = await file.stat();
  let room = roomFor(stat, maxBytes);
  for (let filled = 0; ; ) {
    const { bytesRead } = await file.read(room, filled, room.length - filled);
    filled += bytesRead;
    if (bytesRead === 0) return room.subarray(0, filled);
    if (filled === room.length) room = larger(room, stat, maxBytes);
  }
}

/** First buffer for a file whose size is 0, bytes: it is empty, or one of `/proc`, which has content all the same. */
const FIRST_BYTES = 4_096;

/** A buffer of one byte more than the file has, which shows whether it has grown. */
function roomFor(stat: Stats, maxBytes: number): Buffer {
  if (stat.isDirectory()) throw Object.assign(new Error("it is a directory"), { code: "EISDIR" });
  if (!stat.isFile()) throw new Error("it is a pipe, a socket or a device, not a regular file");
  if (stat.size > maxBytes) throw new FileTooLargeError(maxBytes);
  return Buffer.allocUnsafe((stat.size === 0 ? Math.min(FIRST_BYTES, maxBytes) : stat.size) + 1);
}

/** A buffer of twice the size, with the content so far, for a file without a size; throws for every other file. */
function larger(room: Buffer, { size }: Stats, maxBytes: number): Buffer {
  if (room.length > maxBytes) throw new FileTooLargeError(maxBytes);
  if (size > 0) throw new Error("it grew while it was read");
  const next = Buffer.alloc(Math.min(2 * room.length, maxBytes + 1));
  room.copy(next);
  return next;
}

/** A file that an option names. It may be a pipe, a device, or on a network disk that does not answer. */
export class BoundedFile {
  readonly path: string;
  readonly #maxBytes: number;
  readonly #load: typeof readBounded;
  #pending: Promise<Buffer> | undefined;

  constructor(path: string, maxBytes: number, load = readBounded) {
    this.path = path;
    this.#maxBytes = maxBytes;
    this.#load = load;
  }

  /**
   * Reads the content. Rejects as `readBounded` does, or with the reason of the signal. A read cannot be cancelled and
   * occupies one of libuv's few threads, so concurrent callers share it.
   */
  read(signal: AbortSignal): Promise<Buffer> {
    this.#pending ??= this.#load(this.path, this.#maxBytes).finally(() => {
      this.#pending = undefined;
    });
    return untilAborted(this.#pending, signal);
  }
}

/** Why a file could not be read, in words for the user who named it. */
export function readFailure(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return WORDS.get(code) ?? message;
}

const WORDS = new Map([
  ["ENOENT", "there is no such file"],
  ["EACCES", "permission denied"],
  ["EISDIR", "it is a directory"],
  ["ENXIO", "it is a pipe, a socket or a device, not a regular file"],
  ["EMFILE", "this process has no file descriptor left"],
  ["ENFILE", "this machine has no file descriptor left"],
]);
