import { createHash } from "node:crypto";
import { type FSWatcher, realpathSync, statSync, watch } from "node:fs";
import { dirname } from "node:path";
import { readBounded, readBoundedSync } from "./read-bounded.ts";
import { readFailure } from "./read-failure.ts";

export interface WatchFilesOptions {
  /** Changes come in bursts (certificate, then key); the files are read once, this long after the first of them. */
  readonly settleMs?: number;
  /** Files are compared this often even if no event arrives: network file systems send none. */
  readonly pollMs?: number;
  /** The same while a directory does not exist or cannot be watched. */
  readonly missingPollMs?: number;
}

export interface FileWatch {
  /** Calls `onChange` again after the next look at the files, changed or not: their content could not be used. */
  tellAgain(): void;
  close(): void;
}

/**
 * Calls `onChange` when the content of one of the files has changed, has appeared or has gone (design: "Trust", files
 * are read again when they change). Directories are watched, not files: Kubernetes swaps a `..data` symlink and
 * editors rename over. Keeps no process alive. Start it before the first read, so that no change falls between.
 */
export function watchFiles(paths: readonly string[], onChange: () => void, options: WatchFilesOptions = {}): FileWatch {
  return new Watch(paths, onChange, { settleMs: 200, pollMs: 30_000, missingPollMs: 1_000, ...options });
}

const looks = new Set<() => void>();

/** `look` is called whenever somebody asks for all files to be looked at. Returns a function that ends this. */
export function whenFilesAreToBeRead(look: () => void): () => void {
  looks.add(look);
  return () => void looks.delete(look);
}

/** Every watch of this process looks at its files soon, as after an event: an operator has asked for it (SIGHUP). */
export function lookAtAllFiles(): void {
  for (const look of looks) look();
}

interface Directory {
  readonly watcher: FSWatcher;
  readonly inode: number;
}

class Watch implements FileWatch {
  readonly #paths: readonly string[];
  readonly #onChange: () => void;
  readonly #options: Required<WatchFilesOptions>;
  readonly #directories = new Map<string, Directory>();
  #digests: string[];
  #timer: NodeJS.Timeout | undefined;
  #timerIsPoll = false;
  #checking = false;
  #again = false;
  #unused = false;
  #closed = false;
  readonly #forget: () => void;

  constructor(paths: readonly string[], onChange: () => void, options: Required<WatchFilesOptions>) {
    this.#paths = [...new Set(paths)];
    this.#onChange = onChange;
    this.#options = options;
    const complete = this.#watchDirectories();
    this.#digests = this.#paths.map(readNow);
    this.#poll(complete);
    this.#forget = whenFilesAreToBeRead(this.#onEvent);
  }

  tellAgain(): void {
    this.#unused = true;
  }

  close(): void {
    this.#closed = true;
    this.#forget();
    clearTimeout(this.#timer);
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  readonly #onEvent = (): void => {
    if (this.#closed) return;
    if (this.#checking) this.#again = true;
    else if (this.#timer === undefined || this.#timerIsPoll) this.#schedule(this.#options.settleMs, false);
  };

  readonly #onTimer = (): void => {
    this.#timer = undefined;
    void this.#check();
  };

  #schedule(delayMs: number, isPoll: boolean): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onTimer, delayMs).unref();
    this.#timerIsPoll = isPoll;
  }

  #poll(complete: boolean): void {
    this.#schedule(complete ? this.#options.pollMs : this.#options.missingPollMs, true);
  }

  async #check(): Promise<void> {
    this.#checking = true;
    this.#again = false;
    // Watch before reading: what changes after the read is an event.
    const complete = this.#watchDirectories();
    const digests = await Promise.all(this.#paths.map(readLater));
    this.#checking = false;
    if (this.#closed) return;
    if (this.#again) this.#schedule(this.#options.settleMs, false);
    else this.#poll(complete);
    if (!this.#unused && digests.every((digest, index) => digest === this.#digests[index])) return;
    this.#unused = false;
    this.#digests = digests;
    this.#onChange();
  }

  /** Watch the directory of each path and of the file it leads to; `false` if one of them cannot be watched now. */
  #watchDirectories(): boolean {
    const wanted = new Set(this.#paths.flatMap((path) => [dirname(path), dirname(resolved(path))]));
    for (const [path, { watcher, inode }] of this.#directories) {
      // A watch follows the inode: one on a directory that was replaced is deaf.
      if (wanted.has(path) && inodeOf(path) === inode) continue;
      watcher.close();
      this.#directories.delete(path);
    }
    for (const path of wanted) if (!this.#directories.has(path)) this.#watchDirectory(path);
    return this.#directories.size === wanted.size;
  }

  #watchDirectory(path: string): void {
    const inode = inodeOf(path);
    if (inode === undefined) return;
    try {
      const watcher = watch(path, { persistent: false });
      watcher.on("change", this.#onEvent);
      watcher.on("error", () => {
        watcher.close();
        if (this.#directories.get(path)?.watcher === watcher) this.#directories.delete(path);
        this.#onEvent();
      });
      this.#directories.set(path, { watcher, inode });
    } catch {
      // No watch is left on this machine, or the directory has just gone: the poll finds changes.
    }
  }
}

/** Of what a path leads to now; `undefined`: to nothing. */
export function inodeOf(path: string): number | undefined {
  try {
    return statSync(path).ino;
  } catch {
    return undefined;
  }
}

/** Where links lead; the path itself where there is nothing. */
export function resolved(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** A digest of the content, or why it cannot be read. Another reason than before is a change. */
function readNow(path: string): string {
  try {
    return digest(readBoundedSync(path));
  } catch (error) {
    return readFailure(error);
  }
}

async function readLater(path: string): Promise<string> {
  try {
    return digest(await readBounded(path));
  } catch (error) {
    return readFailure(error);
  }
}

/** Keys are among these files: only a digest of them is kept. */
function digest(content: Buffer): string {
  return createHash("sha256").update(content).digest("base64");
}
