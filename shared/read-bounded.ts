import { closeSync, constants, fstatSync, openSync, promises, readSync, type Stats } from "node:fs";

/**
 * Maximum size of a file that an option or a document names, bytes. ConfigMaps and Secrets end at 1 MiB; CA bundles with
 * text dumps and long CRLs can be larger.
 */
export const MAX_FILE_BYTES = 4 * 1_048_576;

/** The file is larger than its reader allows. The message is `it is larger than 4 MiB`. */
export class FileTooLargeError extends Error {
  override readonly name = "FileTooLargeError";

  constructor(maxBytes: number) {
    super(`it is larger than ${maxBytes < 1_048_576 ? `${maxBytes / 1024} KiB` : `${maxBytes / 1_048_576} MiB`}`);
  }
}

/** Without waiting for the other end of a pipe. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Reads a file whose path comes from a user. Only a regular file is read (links are followed), and only if it is not
 * larger than `maxBytes`. Throws Node's error, or one whose message continues "cannot be read: ".
 */
export function readBoundedSync(path: string, maxBytes = MAX_FILE_BYTES): Buffer {
  const file = openSync(path, FLAGS);
  try {
    const room = roomFor(fstatSync(file), maxBytes);
    for (let filled = 0; ; ) {
      const bytesRead = readSync(file, room, filled, room.length - filled, null);
      filled += bytesRead;
      if (bytesRead === 0) return room.subarray(0, filled);
      if (filled === room.length) throw overflow(room, maxBytes);
    }
  } finally {
    closeSync(file);
  }
}

/** The same without blocking the event loop. */
export async function readBounded(path: string, maxBytes = MAX_FILE_BYTES): Promise<Buffer> {
  await using file = await promises.open(path, FLAGS);
  const room = roomFor(await file.stat(), maxBytes);
  for (let filled = 0; ; ) {
    const { bytesRead } = await file.read(room, filled, room.length - filled);
    filled += bytesRead;
    if (bytesRead === 0) return room.subarray(0, filled);
    if (filled === room.length) throw overflow(room, maxBytes);
  }
}

/** One byte more than the file has, which shows that it has grown. Files of `/proc` have a size of 0 and content. */
function roomFor(stat: Stats, maxBytes: number): Buffer {
  if (stat.isDirectory()) throw Object.assign(new Error("it is a directory"), { code: "EISDIR" });
  if (!stat.isFile()) throw new Error("it is a pipe, a socket or a device, not a regular file");
  if (stat.size > maxBytes) throw new FileTooLargeError(maxBytes);
  return Buffer.alloc((stat.size === 0 ? maxBytes : stat.size) + 1);
}

function overflow(room: Buffer, maxBytes: number): Error {
  return room.length > maxBytes ? new FileTooLargeError(maxBytes) : new Error("it grew while it was read");
}
