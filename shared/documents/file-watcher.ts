import { type FSWatcher, readlinkSync, realpathSync, statSync, watch } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { getOrMake } from "../basics/collections.ts";

export interface WatchTiming {
  /**
   * Changes come in bursts; they are reported when no other has come for this long, ms, so that no half edit is read.
   */
  readonly settleMs: number;
  /** Interval at which all owners are suspects even without an event, because network file systems send none, ms. */
  readonly pollMs: number;
  /** Interval at which directories that are missing, replaced or cannot be watched are checked, ms. */
  readonly missingPollMs: number;
}

const WATCH_TIMING: WatchTiming = { settleMs: 200, pollMs: 30_000, missingPollMs: 1_000 };

/** A burst that does not end is reported after this many times `settleMs`. */
const MOST_SETTLES = 5;
/** Number of owners whose links are followed again in one turn of the event loop. */
const OWNERS_IN_TURN = 50;

/** Where problems of files are logged. */
export interface FileLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Owners whose files may have changed; `all` if it is not known. */
export type Suspects<Owner> = ReadonlySet<Owner> | "all";

const watchers = new Set<{ recheck(): void }>();

/** Makes every watcher of this process report all its owners soon: an operator has asked for it (SIGHUP). */
export function recheckAllFiles(): void {
  for (const watcher of watchers) watcher.recheck();
}

/** The files that an owner reads. */
interface OwnedFiles {
  /** The paths as they were given. */
  readonly given: readonly string[];
  /** The given paths, the links and files that they lead to, and the directories of all. */
  readonly all: ReadonlySet<string>;
}

/** The watch of a directory; without a watcher there is no such directory now, or the machine has no watch left. */
interface DirectoryWatch {
  readonly inode?: number;
  readonly watcher?: FSWatcher;
}

/**
 * Watches many files, each for the owners that read it, and reports which owners should read again: with a thousand
 * clusters, an edit of one must not read the files of all. Whether a content has changed is for the owner to see.
 *
 * Directories are watched, not files, because Kubernetes swaps a `..data` symlink and editors rename over a file. A
 * watcher keeps no process alive.
 */
export class FileWatcher<Owner> {
  readonly #folder: string | undefined;
  readonly #onSuspects: (suspects: Suspects<Owner>) => Promise<void>;
  readonly #timing: WatchTiming;
  readonly #owned = new Map<Owner, OwnedFiles>();
  /** The owners of each of these paths and directories. */
  readonly #owners = new Map<string, Set<Owner>>();
  readonly #watches = new Map<string, DirectoryWatch>();
  /** Owners of the next report; `undefined`: nothing is to be reported. */
  #suspects: Set<Owner> | "all" | undefined;
  #pending: NodeJS.Timeout | undefined;
  /** When the burst that is pending began, by `performance.now()`. */
  #pendingSince = 0;
  #reporting = false;
  #closed = false;
  readonly #poll: NodeJS.Timeout;
  readonly #missingPoll: NodeJS.Timeout;

  /** `folder`: new files in it are reported, too, by a report that may name no owner. One report waits for the last. */
  constructor(
    onSuspects: (suspects: Suspects<Owner>) => Promise<void>,
    { folder, timing }: { readonly folder?: string; readonly timing?: Partial<WatchTiming> | undefined } = {},
  ) {
    this.#folder = folder;
    this.#onSuspects = onSuspects;
    this.#timing = { ...WATCH_TIMING, ...timing };
    if (folder !== undefined) this.#watch(folder);
    this.#poll = setInterval(() => this.recheck(), this.#timing.pollMs).unref();
    this.#missingPoll = setInterval(() => this.#checkDirectories(), this.#timing.missingPollMs).unref();
    watchers.add(this);
  }

  /**
   * `owner` reads these files from now on, and no others. Call it before they are read, so that no change is missed.
   */
  follow(owner: Owner, paths: readonly string[]): void {
    const before = this.#owned.get(owner)?.all ?? [];
    const files = paths.flatMap(withLinkTargets);
    const directories = files.map((path) => dirname(path));
    const all = new Set([...files, ...directories]);
    this.#owned.set(owner, { given: paths, all });
    for (const path of all) getOrMake(this.#owners, path, () => new Set()).add(owner);
    for (const directory of directories)
      if (this.#watches.get(directory)?.watcher === undefined) this.#watch(directory);
    for (const path of before) if (!all.has(path)) this.#disown(path, owner);
  }

  forget(owner: Owner): void {
    this.follow(owner, []);
    this.#owned.delete(owner);
  }

  /** Reports all owners soon. */
  recheck(): void {
    this.#suspect("all");
  }

  close(): void {
    this.#closed = true;
    watchers.delete(this);
    clearTimeout(this.#pending);
    clearInterval(this.#poll);
    clearInterval(this.#missingPoll);
    for (const { watcher } of this.#watches.values()) watcher?.close();
  }

  #disown(path: string, owner: Owner): void {
    const owners = this.#owners.get(path);
    owners?.delete(owner);
    if (owners?.size !== 0) return;
    this.#owners.delete(path);
    if (path === this.#folder) return;
    this.#watches.get(path)?.watcher?.close();
    this.#watches.delete(path);
  }

  #onEvent(directory: string, name: string | null): void {
    // All files of a mounted volume lead through `..data`. A directory reports its own end under its name.
    const isAll = name === null || name.startsWith("..") || name === basename(directory);
    const owners = this.#owners.get(join(directory, name ?? "")) ?? (isAll ? this.#owners.get(directory) : undefined);
    if (owners !== undefined || isAll || directory === this.#folder) this.#suspect(owners ?? []);
  }

  /** Watches directories that have appeared or were replaced. A watch follows the inode and misses a replacement. */
  #checkDirectories(): void {
    for (const [directory, { watcher, inode }] of this.#watches) {
      if (watcher !== undefined && inode === inodeOf(directory)) continue;
      watcher?.close();
      this.#watch(directory);
      this.#suspect(this.#owners.get(directory) ?? []);
    }
  }

  /** Without owners it reports that there may be a new file. */
  #suspect(owners: Iterable<Owner> | "all"): void {
    if (owners === "all") this.#suspects = "all";
    else if (this.#suspects !== "all") {
      this.#suspects ??= new Set();
      for (const owner of owners) this.#suspects.add(owner);
    }
    if (!this.#reporting) this.#schedule();
  }

  #schedule(): void {
    if (this.#closed) return;
    const { settleMs } = this.#timing;
    const now = performance.now();
    if (this.#pending === undefined) this.#pendingSince = now;
    const leftMs = this.#pendingSince + MOST_SETTLES * settleMs - now;
    clearTimeout(this.#pending);
    this.#pending = setTimeout(() => void this.#report(), Math.max(0, Math.min(settleMs, leftMs))).unref();
  }

  async #report(): Promise<void> {
    const suspects = this.#suspects ?? new Set();
    this.#suspects = undefined;
    this.#reporting = true;
    await this.#followAgain(suspects === "all" ? this.#owned.keys() : suspects);
    await this.#onSuspects(suspects);
    this.#reporting = false;
    this.#pending = undefined;
    if (this.#suspects !== undefined) this.#schedule();
  }

  /** Follows the links of these owners again: they may lead elsewhere now. */
  async #followAgain(owners: Iterable<Owner>): Promise<void> {
    let count = 0;
    for (const owner of owners) {
      if (++count % OWNERS_IN_TURN === 0) await nextTurn();
      const owned = this.#owned.get(owner);
      if (owned !== undefined && !this.#closed) this.follow(owner, owned.given);
    }
  }

  #watch(directory: string): void {
    const inode = inodeOf(directory);
    this.#watches.set(directory, {});
    if (inode === undefined) return;
    try {
      const watcher = watch(directory, { persistent: false });
      watcher.on("change", (_type, name) => this.#onEvent(directory, name === null ? null : String(name)));
      watcher.on("error", () => {
        watcher.close();
        // The poll takes over, unless another watcher has.
        if (this.#watches.get(directory)?.watcher === watcher) this.#watches.set(directory, {});
      });
      this.#watches.set(directory, { watcher, inode });
    } catch {
      // The machine has no watch left, or the directory has just gone: the poll finds changes.
    }
  }
}

/** Maximum number of links that are followed; a longer chain is watched at its ends. */
const MAX_LINKS = 8;

/** A path, the links that it leads through, and the file at the end. */
function withLinkTargets(path: string): string[] {
  const real = realPathOf(path);
  if (real === path) return [path];
  const found = [path];
  for (let at = path; found.length < MAX_LINKS; found.push(at)) {
    try {
      at = resolve(dirname(at), readlinkSync(at));
    } catch {
      break; // no link, or nothing there
    }
  }
  return real === undefined ? found : [...found, real];
}

/** `undefined`: there is no such file now. */
function realPathOf(path: string): string | undefined {
  try {
    return realpathSync.native(path);
  } catch {
    return undefined;
  }
}

function inodeOf(path: string): number | undefined {
  try {
    return statSync(path).ino;
  } catch {
    return undefined;
  }
}
