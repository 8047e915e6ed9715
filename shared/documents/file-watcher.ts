import { type FSWatcher, readlinkSync, realpathSync, statSync, watch } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";

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

/** A burst that does not end is reported after so many times `settleMs`. */
const MOST_SETTLES = 5;
/** Links are followed again for so many owners in one turn of the event loop. */
const OWNERS_IN_TURN = 50;

/** Where problems of files are logged. */
export interface FileLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Owners whose files may have changed; `all` if it is not known. */
export type Suspects = ReadonlySet<string> | "all";

const watchers = new Set<FileWatcher>();

/** Makes every watcher of this process report all its owners soon: an operator has asked for it (SIGHUP). */
export function recheckAllFiles(): void {
  for (const watcher of watchers) watcher.recheck();
}

/**
 * Watches many files, each for the owners that read it, and reports which owners should read again: with a thousand
 * clusters, an edit of one must not read the files of all. Whether a content has changed is for the owner to see.
 *
 * Directories are watched, not files, because Kubernetes swaps a `..data` symlink and editors rename over a file. A
 * watcher keeps no process alive.
 */
export class FileWatcher {
  readonly #folder: string | undefined;
  readonly #onSuspects: (suspects: Suspects) => Promise<void>;
  readonly #timing: WatchTiming;
  /** The paths of each owner as they were given. */
  readonly #given = new Map<string, readonly string[]>();
  /** The paths of each owner together with the links and files that they lead to. */
  readonly #pathsOf = new Map<string, ReadonlySet<string>>();
  /** The owners of each of these paths, and of each of their directories. */
  readonly #owners = new Map<string, Set<string>>();
  readonly #directoryOwners = new Map<string, Set<string>>();
  readonly #watches = new Map<string, { readonly watcher: FSWatcher; readonly inode: number }>();
  #suspects = new Set<string>();
  #all = false;
  #pending: NodeJS.Timeout | undefined;
  /** When the burst that is pending began, by `performance.now()`. */
  #pendingSince = 0;
  #reporting = false;
  #again = false;
  #closed = false;
  readonly #poll: NodeJS.Timeout;
  readonly #missingPoll: NodeJS.Timeout;

  /** `folder`: new files in it are reported, too, by a report that may name no owner. One report waits for the last. */
  constructor(
    onSuspects: (suspects: Suspects) => Promise<void>,
    { folder, timing }: { readonly folder?: string; readonly timing?: Partial<WatchTiming> | undefined } = {},
  ) {
    this.#folder = folder;
    this.#onSuspects = onSuspects;
    this.#timing = { ...WATCH_TIMING, ...timing };
    if (folder !== undefined) this.#watchDirectory(folder);
    this.#poll = setInterval(() => this.recheck(), this.#timing.pollMs).unref();
    this.#missingPoll = setInterval(this.#checkDirectories, this.#timing.missingPollMs).unref();
    watchers.add(this);
  }

  /**
   * `owner` reads these files from now on, and no others. Call it before they are read, so that no change is missed.
   */
  follow(owner: string, paths: readonly string[]): void {
    const before = this.#pathsOf.get(owner) ?? new Set();
    const now = new Set(paths.flatMap(withLinkTargets));
    this.#given.set(owner, paths);
    this.#pathsOf.set(owner, now);
    for (const path of now) {
      add(this.#owners, path, owner);
      const directory = dirname(path);
      add(this.#directoryOwners, directory, owner);
      if (!this.#watches.has(directory)) this.#watchDirectory(directory);
    }
    const directories = new Set([...now].map((path) => dirname(path)));
    for (const path of before) {
      if (!now.has(path)) remove(this.#owners, path, owner);
      const directory = dirname(path);
      if (!directories.has(directory)) remove(this.#directoryOwners, directory, owner);
      if (directory !== this.#folder && !this.#directoryOwners.has(directory)) this.#unwatch(directory);
    }
  }

  forget(owner: string): void {
    this.follow(owner, []);
    this.#given.delete(owner);
    this.#pathsOf.delete(owner);
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
    for (const directory of [...this.#watches.keys()]) this.#unwatch(directory);
  }

  #onEvent(directory: string, name: string | null): void {
    const path = name === null ? undefined : join(directory, name);
    const owners = path === undefined ? undefined : this.#owners.get(path);
    if (owners !== undefined) this.#suspect(owners);
    else if (path !== undefined && this.#watches.has(path)) this.#suspect(this.#directoryOwners.get(path) ?? []);
    // All files of a mounted volume lead through `..data`. A directory reports its own end under its name.
    else if (name === null || name.startsWith("..") || name === basename(directory)) {
      this.#suspect(this.#directoryOwners.get(directory) ?? []);
    } else if (directory === this.#folder) this.#suspect([]);
  }

  /** Watches directories that have appeared or were replaced. A watch follows the inode and misses a replacement. */
  readonly #checkDirectories = (): void => {
    const wanted = new Set(this.#directoryOwners.keys());
    if (this.#folder !== undefined) wanted.add(this.#folder);
    for (const directory of wanted) {
      const watched = this.#watches.get(directory);
      if (watched !== undefined && watched.inode === inodeOf(directory)) continue;
      this.#unwatch(directory);
      this.#watchDirectory(directory);
      this.#suspect(this.#directoryOwners.get(directory) ?? []);
    }
  };

  /** Without owners it reports that there may be a new file. */
  #suspect(owners: Iterable<string> | "all"): void {
    if (owners === "all") this.#all = true;
    else for (const owner of owners) this.#suspects.add(owner);
    if (this.#reporting) this.#again = true;
    else this.#schedule();
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
    const suspects = this.#all ? "all" : this.#suspects;
    this.#suspects = new Set();
    this.#all = false;
    this.#again = false;
    this.#reporting = true;
    await this.#followAgain(suspects === "all" ? this.#given.keys() : suspects);
    await this.#onSuspects(suspects);
    this.#reporting = false;
    this.#pending = undefined;
    if (this.#again) this.#schedule();
  }

  /** Their links may lead elsewhere now. */
  async #followAgain(owners: Iterable<string>): Promise<void> {
    let count = 0;
    for (const owner of owners) {
      if (++count % OWNERS_IN_TURN === 0) await nextTurn();
      const paths = this.#given.get(owner);
      if (paths !== undefined && !this.#closed) this.follow(owner, paths);
    }
  }

  #watchDirectory(directory: string): void {
    const inode = inodeOf(directory);
    if (inode === undefined) return;
    try {
      const watcher = watch(directory, { persistent: false });
      watcher.on("change", (_type, name) => this.#onEvent(directory, name === null ? null : String(name)));
      watcher.on("error", () => this.#unwatch(directory)); // the poll takes over
      this.#watches.set(directory, { watcher, inode });
    } catch {
      // The machine has no watch left, or the directory has just gone: the poll finds changes.
    }
  }

  #unwatch(directory: string): void {
    this.#watches.get(directory)?.watcher.close();
    this.#watches.delete(directory);
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

function add(owners: Map<string, Set<string>>, key: string, owner: string): void {
  const found = owners.get(key);
  if (found === undefined) owners.set(key, new Set([owner]));
  else found.add(owner);
}

function remove(owners: Map<string, Set<string>>, key: string, owner: string): void {
  const found = owners.get(key);
  found?.delete(owner);
  if (found?.size === 0) owners.delete(key);
}
