import { type FSWatcher, watch } from "node:fs";
import { basename, dirname, join } from "node:path";
import { inodeOf, resolved, whenFilesAreToBeRead } from "../../shared/documents/watch-files.ts";

export interface WatchTiming {
  /** Changes come in bursts; they are told so long after the first of them, ms. */
  readonly settleMs: number;
  /** Everything is looked at so often even if no event arrives: network file systems send none, ms. */
  readonly pollMs: number;
  /** The same for what lies in a directory that does not exist or cannot be watched, ms. */
  readonly missingPollMs: number;
}

const TIMING: WatchTiming = { settleMs: 200, pollMs: 30_000, missingPollMs: 1_000 };

/** Owners whose files may have changed; all of them, if nobody can tell. */
export type Suspects = ReadonlySet<string> | "all";

/**
 * Watches many files, each for the owners that read it, and tells which of those should look again: with a thousand
 * clusters, an edit of one must not read the files of all. Whether a content has changed is for the owner to see.
 * Directories are watched, as in `shared/documents/watch-files.ts`; that one compares a few files, and all of them each time.
 * Keeps no process alive.
 */
export class OwnedFilesWatch {
  readonly #folder: string | undefined;
  readonly #onSuspects: (suspects: Suspects) => Promise<void>;
  readonly #timing: WatchTiming;
  /** Each path that an owner follows, and the file that it leads to; and their directories. */
  readonly #owners = new Map<string, Set<string>>();
  readonly #directoryOwners = new Map<string, Set<string>>();
  readonly #pathsOf = new Map<string, readonly string[]>();
  readonly #watches = new Map<string, { readonly watcher: FSWatcher; readonly inode: number }>();
  #suspects = new Set<string>();
  #all = false;
  #pending: NodeJS.Timeout | undefined;
  #telling = false;
  #again = false;
  #closed = false;
  readonly #poll: NodeJS.Timeout;
  readonly #missingPoll: NodeJS.Timeout;
  readonly #forget: () => void;

  /** Anything new in `folder` is told as well. */
  constructor(folder: string | undefined, onSuspects: (suspects: Suspects) => Promise<void>, timing = TIMING) {
    this.#folder = folder;
    this.#onSuspects = onSuspects;
    this.#timing = timing;
    if (folder !== undefined) this.#watchDirectory(folder);
    this.#poll = setInterval(() => this.#suspect("all"), timing.pollMs).unref();
    this.#missingPoll = setInterval(this.#onMissingPoll, timing.missingPollMs).unref();
    this.#forget = whenFilesAreToBeRead(() => this.#suspect("all"));
  }

  /** `owner` reads these files from now on, and no others. Call it before they are read: no change falls between. */
  follow(owner: string, paths: Iterable<string>): void {
    const before = this.#pathsOf.get(owner) ?? [];
    const now = new Set([...paths].flatMap((path) => [path, resolved(path)]));
    this.#pathsOf.set(owner, [...now]);
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
      if (!this.#isWanted(directory)) this.#unwatch(directory);
    }
  }

  forget(owner: string): void {
    this.follow(owner, []);
    this.#pathsOf.delete(owner);
  }

  close(): void {
    this.#closed = true;
    this.#forget();
    clearTimeout(this.#pending);
    clearInterval(this.#poll);
    clearInterval(this.#missingPoll);
    for (const directory of [...this.#watches.keys()]) this.#unwatch(directory);
  }

  #isWanted(directory: string): boolean {
    return directory === this.#folder || this.#directoryOwners.has(directory);
  }

  #onEvent(directory: string, name: string | null): void {
    const path = name === null ? undefined : join(directory, name);
    const owners = path === undefined ? undefined : this.#owners.get(path);
    if (owners !== undefined) this.#suspect(owners);
    else if (path !== undefined && this.#watches.has(path)) this.#suspect(this.#directoryOwners.get(path) ?? []);
    // Kubernetes swaps `..data`, through which all files of a directory lead; a directory tells its own end by its name.
    else if (name === null || name.startsWith("..") || name === basename(directory)) {
      this.#suspect(this.#directoryOwners.get(directory) ?? []);
    } else if (directory === this.#folder) this.#suspect([]);
  }

  /** Directories that came or were replaced, whose watch is deaf, and those that cannot be watched at all. */
  readonly #onMissingPoll = (): void => {
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

  /** None: there may be somebody new. */
  #suspect(owners: Iterable<string> | "all"): void {
    if (owners === "all") this.#all = true;
    else for (const owner of owners) this.#suspects.add(owner);
    if (this.#telling) this.#again = true;
    else this.#schedule();
  }

  #schedule(): void {
    if (!this.#closed) this.#pending ??= setTimeout(() => void this.#tell(), this.#timing.settleMs).unref();
  }

  async #tell(): Promise<void> {
    const suspects = this.#all ? "all" : this.#suspects;
    this.#suspects = new Set();
    this.#all = false;
    this.#again = false;
    this.#telling = true;
    await this.#onSuspects(suspects);
    this.#telling = false;
    this.#pending = undefined;
    if (this.#again) this.#schedule();
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
      // No watch is left on this machine, or the directory has just gone: the poll finds changes.
    }
  }

  #unwatch(directory: string): void {
    this.#watches.get(directory)?.watcher.close();
    this.#watches.delete(directory);
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
