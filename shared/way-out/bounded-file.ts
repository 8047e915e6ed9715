import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { untilAborted } from "../net/until-aborted.ts";

/** A file that somebody has named, and that may be anything: a pipe, a device, on a disk of a server that is gone. */
export class BoundedFile {
  readonly path: string;
  readonly #maxBytes: number;
  readonly #load: typeof readBounded;
  #underWay: Promise<Buffer> | undefined;

  constructor(path: string, maxBytes: number, load = readBounded) {
    this.path = path;
    this.#maxBytes = maxBytes;
    this.#load = load;
  }

  /**
   * What it holds; of one that is too large, one byte too many. A read cannot be stopped and holds a thread of libuv's few:
   * who comes while one is under way waits for that one. Rejects with the signal's reason when that is aborted.
   */
  read(signal: AbortSignal): Promise<Buffer> {
    this.#underWay ??= this.#load(this.path, this.#maxBytes).finally(() => {
      this.#underWay = undefined;
    });
    return untilAborted(this.#underWay, signal);
  }
}

async function readBounded(path: string, maxBytes: number): Promise<Buffer> {
  // Without waiting for a pipe's other end.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const stat = await file.stat();
  if (stat.isDirectory()) throw new Error("it is a directory");
  if (!stat.isFile()) throw new Error("it is no regular file");
  const room = Buffer.alloc(maxBytes + 1);
  let filled = 0;
  for (;;) {
    const { bytesRead } = await file.read(room, filled, room.length - filled);
    filled += bytesRead;
    if (bytesRead === 0 || filled === room.length) return room.subarray(0, filled);
  }
}
