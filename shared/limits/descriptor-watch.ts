import { fileLimit, openFiles } from "./file-limit.ts";
import { outOfFiles } from "./out-of-files.ts";

/** `few`: it is time to do something; `none`: what is left is for probes, files and peers that come back. */
export type FilesLeft = "enough" | "few" | "none";

export interface FilesSeen {
  /** What is told: it does not go to and fro with every descriptor. */
  readonly left: FilesLeft;
  readonly open: number;
  readonly limit: number;
}

export interface DescriptorWatchOptions {
  readonly limit?: number | undefined;
  /** How many of `limit` are open. */
  readonly count?: (limit: number) => Promise<number>;
  /** Told once for each change. */
  onChange(seen: FilesSeen): void;
}

const EVERY_MS = 1_000;
/** As long as there are few: a probe, or a caller, is to hear what is true now. */
const SOON_MS = 100;
/** Where files have to be counted, a look takes 25 ms for 16,000 of them, a third of it the loop's: it rests for so many times as long. */
const REST = 10;
/** Few from so much of the limit on, and enough again below the other: what goes up and down is told once. */
const FEW = 0.9;
const ENOUGH = 0.8;
/** So many are kept back, and of a small limit this part. */
const KEPT_BACK = 64;
const KEPT_BACK_PART = 1 / 16;

/**
 * Looks how many files the process has open against how many it may have: nothing else tells when they run out, since libuv
 * closes connections for which there is none, or lets them wait, without an event.
 */
export class DescriptorWatch {
  readonly #limit: number | undefined;
  readonly #count: (limit: number) => Promise<number>;
  readonly #onChange: (seen: FilesSeen) => void;
  #seen: FilesSeen | undefined;
  /** As it was told last. */
  #left: FilesLeft = "enough";
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor({ limit = fileLimit(), count = openFiles, onChange }: DescriptorWatchOptions) {
    this.#limit = limit;
    this.#count = count;
    this.#onChange = onChange;
  }

  /** Of the last look; `undefined` before the first, after one that failed, and where there is no limit that this system tells. */
  get seen(): FilesSeen | undefined {
    return this.#seen;
  }

  start(): void {
    if (this.#limit !== undefined) void this.#look(this.#limit);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** The next one is due when this is done, so there are never two. */
  async #look(limit: number): Promise<void> {
    const startedAt = performance.now();
    const open = await this.#open(limit);
    if (this.#stopped) return;
    this.#see(open, limit);
    const waitMs = Math.max(this.#left === "enough" ? EVERY_MS : SOON_MS, REST * (performance.now() - startedAt));
    this.#timer = setTimeout(() => void this.#look(limit), waitMs).unref();
  }

  async #open(limit: number): Promise<number | undefined> {
    try {
      return await this.#count(limit);
    } catch (error) {
      // Looking takes one, too. Anything else says nothing of files, and nobody is to be refused for it.
      return outOfFiles(error) === undefined ? undefined : limit;
    }
  }

  #see(open: number | undefined, limit: number): void {
    if (open === undefined) {
      this.#seen = undefined;
      return;
    }
    const before = this.#left;
    this.#left = filesLeft(open, limit, before);
    this.#seen = { left: this.#left, open, limit };
    if (this.#left !== before) this.#onChange(this.#seen);
  }
}

/** Have the open files come to those that are kept back? True at this moment, and maybe not at the next. */
export function usedUp({ open, limit }: Pick<FilesSeen, "open" | "limit">): boolean {
  return open >= limit - keptBack(limit);
}

export function filesLeft(open: number, limit: number, before: FilesLeft): FilesLeft {
  if (usedUp({ open, limit })) return "none";
  // Who is sent away by it, and sent back, brings the next change himself: it ends with twice as many free.
  if (before === "none" && open > limit - 2 * keptBack(limit)) return "none";
  return open >= limit * (before === "enough" ? FEW : ENOUGH) ? "few" : "enough";
}

/** The lowest limit at which so many open files are not yet few. What is kept back is less than the part that is left. */
export function limitFor(open: number): number {
  return Math.floor(open / FEW) + 1;
}

function keptBack(limit: number): number {
  return Math.min(KEPT_BACK, Math.floor(limit * KEPT_BACK_PART));
}
