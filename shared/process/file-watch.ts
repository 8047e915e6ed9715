import { fileLimit, openFiles } from "./file-limit.ts";

/** `few`: it is time to do something; `none`: what is left is for probes, files and peers that come back. */
export type FilesLeft = "enough" | "few" | "none";

export interface FilesSeen {
  readonly left: FilesLeft;
  readonly open: number;
  readonly limit: number;
}

export interface FileWatchOptions {
  readonly limit?: number | undefined;
  readonly count?: () => number | undefined;
  /** Told once for each change. */
  onChange(seen: FilesSeen): void;
}

const EVERY_MS = 1_000;
/** As long as there are few: a probe, or a caller, is to hear what is true now. */
const SOON_MS = 100;
/** Where files have to be counted, a look takes a millisecond for a thousand of them: it is to cost 1 % of the time. */
const REST = 100;
/** Few from so much of the limit on, and enough again below the other: what goes up and down is told once. */
const FEW = 0.9;
const ENOUGH = 0.8;
/** So many are kept back, and of a small limit this part. */
const KEPT_BACK = 64;
const KEPT_BACK_PART = 1 / 16;

/**
 * Looks how many files the process has open against how many it may have: nothing else tells when they run out, since libuv
 * closes connections for which there is none without an event.
 */
export class FileWatch {
  readonly #limit: number | undefined;
  readonly #count: () => number | undefined;
  readonly #onChange: (seen: FilesSeen) => void;
  #seen: FilesSeen | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor({ limit = fileLimit(), count = openFiles, onChange }: FileWatchOptions) {
    this.#limit = limit;
    this.#count = count;
    this.#onChange = onChange;
  }

  /** Of the last look; `undefined` where there is no limit, or none that this system tells. */
  get seen(): FilesSeen | undefined {
    return this.#seen;
  }

  start(): void {
    if (this.#limit !== undefined) this.#look(this.#limit);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #look(limit: number): void {
    const startedAt = performance.now();
    const before = this.#seen?.left ?? "enough";
    const open = Math.min(this.#count() ?? limit, limit); // what was inherited may lie beyond it
    const seen = { left: filesLeft(open, limit, before), open, limit };
    this.#seen = seen;
    if (seen.left !== before) this.#onChange(seen);
    const waitMs = Math.max(seen.left === "enough" ? EVERY_MS : SOON_MS, REST * (performance.now() - startedAt));
    this.#timer = setTimeout(() => this.#look(limit), waitMs).unref();
  }
}

export function filesLeft(open: number, limit: number, before: FilesLeft): FilesLeft {
  const keptBack = Math.min(KEPT_BACK, Math.floor(limit * KEPT_BACK_PART));
  if (open >= limit - keptBack) return "none";
  return open >= limit * (before === "enough" ? FEW : ENOUGH) ? "few" : "enough";
}
