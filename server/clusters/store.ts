import { promises } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { ConfigError } from "../../shared/config/options.ts";
import { FileTooLargeError, readBounded } from "../../shared/documents/read-bounded.ts";
import { readFailure } from "../../shared/documents/read-failure.ts";
import { descriptorShortage } from "../../shared/limits/file-descriptors.ts";
import { changesOf } from "./changes.ts";
import type { FlagAuthorities } from "./claimed-certificates.ts";
import type { Cluster, ClusterChanges } from "./cluster.ts";
import { MaterialFiles } from "./material.ts";
import { ServerNames } from "./names.ts";
import { type ClusterFile, loadClusterFile, parseClusterFile } from "./read.ts";
import { settle } from "./settle.ts";
import { OwnedFilesWatch, type Suspects, type WatchTiming } from "./watch-owned-files.ts";

/** A file that is not in use as it is now. What it said before, if anything, stays in use. */
export interface ClusterProblem {
  readonly file: string;
  readonly sentence: string;
}

/** Called for each difference; after one change of the files first for removed, then for changed, then for added ones. */
export interface ClusterListener {
  onAdded(cluster: Cluster): void;
  onChanged(cluster: Cluster, before: Cluster, what: ClusterChanges): void;
  onRemoved(cluster: Cluster): void;
}

export interface ClusterStoreLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface StoreOptions {
  readonly timing?: WatchTiming | undefined;
  /** Whose certificates a side without a CA believes. */
  readonly flags?: () => FlagAuthorities;
}

/** What a file said when it was read last, and what of it is in use. */
interface KnownFile {
  readonly read: ClusterFile;
  readonly inUse: readonly Cluster[];
}

/** Faults shown when a start fails: enough to see what is wrong. */
const MAX_PROBLEMS = 20;
/** A look that could not be made is made again so soon: what it was for may be waiting in the files. */
const RETRY_MS = 1_000;
const NO_FLAGS: FlagAuthorities = {};

/**
 * The clusters of `--clusters DIR_OR_FILE`, kept as their files are (design: "Trust", files are read again). A file that
 * cannot be used keeps its old version and is a problem until it is right again; no other file minds.
 *
 * ```
 *  files change ─▶ suspects read again ─▶ which can be in use together ─▶ differences ─▶ listener
 *                  read.ts                settle.ts                       changes.ts
 * ```
 */
export class ClusterStore {
  readonly #flags: () => FlagAuthorities;
  readonly #path: string;
  readonly #isFolder: boolean;
  readonly #log: ClusterStoreLog;
  readonly #watch: OwnedFilesWatch;
  readonly #materials = new MaterialFiles();
  #files: ReadonlyMap<string, KnownFile> = new Map();
  /** By which all that is in use was found to stand beside each other. */
  #settledBy: FlagAuthorities | undefined;
  #clusters: ReadonlyMap<string, Cluster> = new Map();
  #agentNames = new ServerNames<Cluster>([]);
  #callerNames = new ServerNames<Cluster>([]);
  #problems: readonly ClusterProblem[] = [];
  #listener: ClusterListener | undefined;
  #looking: Promise<void> = Promise.resolve();
  /** Why the last look could not be made. */
  #failure: NodeJS.ErrnoException | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  /** Reads all files and begins to watch them; rejects with a `ConfigError` that has every fault found. */
  static async open(
    path: string,
    log: ClusterStoreLog,
    { timing, flags = () => NO_FLAGS }: StoreOptions = {},
  ): Promise<ClusterStore> {
    const absolute = resolve(path);
    const found = await promises.stat(absolute).catch((error: NodeJS.ErrnoException) => {
      throw new ConfigError(`--clusters: ${absolute} ${whyUnreadable(error)}.`, { cause: error });
    });
    const store = new ClusterStore(absolute, found.isDirectory(), log, { timing, flags });
    await store.#inTurn(() => store.#look("all"));
    if (store.#problems.length === 0) return store;
    store.close();
    const problems = store.#problems.map(({ file, sentence }) => `--clusters: ${file}: ${sentence}`);
    const more = problems.length - MAX_PROBLEMS;
    if (more > 0)
      problems.splice(
        MAX_PROBLEMS,
        more,
        `These are the first ${MAX_PROBLEMS} faults of --clusters, ${more} more follow.`,
      );
    throw new ConfigError(problems, { cause: store.#failure });
  }

  private constructor(
    path: string,
    isFolder: boolean,
    log: ClusterStoreLog,
    { timing, flags }: Required<StoreOptions>,
  ) {
    this.#flags = flags;
    this.#path = path;
    this.#isFolder = isFolder;
    this.#log = log;
    this.#watch = new OwnedFilesWatch(isFolder ? path : dirname(path), this.#onSuspects, timing);
  }

  /** By name; another map after each change. */
  get clusters(): ReadonlyMap<string, Cluster> {
    return this.#clusters;
  }

  /** SNI → cluster on the agents' port; renewed before the listener is called. */
  get agentNames(): ServerNames<Cluster> {
    return this.#agentNames;
  }

  get callerNames(): ServerNames<Cluster> {
    return this.#callerNames;
  }

  problems(): readonly ClusterProblem[] {
    return this.#problems;
  }

  /** Calls the listener for each cluster there is, and from now on for each difference. */
  listen(listener: ClusterListener): void {
    this.#listener = listener;
    for (const cluster of this.#clusters.values()) listener.onAdded(cluster);
  }

  /** The CAs of the flags have changed, and with them which clusters can be in use together. */
  settleAgain(): Promise<void> {
    return this.#onSuspects(new Set());
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#watch.close();
  }

  readonly #onSuspects = (suspects: Suspects): Promise<void> =>
    this.#inTurn(async () => {
      const before = this.#problems;
      await this.#look(suspects);
      this.#logProblems(before);
    });

  /** One look after the other. */
  #inTurn(look: () => Promise<void>): Promise<void> {
    this.#looking = this.#looking.then(look);
    return this.#looking;
  }

  /** Reads again what may have changed. */
  async #look(suspects: Suspects): Promise<void> {
    // Those for which a look has failed are nobody's suspects any more.
    const isSuspect = (path: string) => suspects === "all" || this.#failure !== undefined || suspects.has(path);
    const reads = new Map<string, ClusterFile>();
    const problems: ClusterProblem[] = [];
    clearTimeout(this.#retry);
    try {
      for (const path of await this.#list()) {
        const read = await this.#readAgain(path, isSuspect(path));
        if (read !== undefined) reads.set(path, read);
      }
      this.#failure = undefined;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      // A folder that cannot be listed says nothing about its clusters, nor does a want of descriptors: all stay.
      problems.push({ file: this.#path, sentence: `it ${whyUnreadable(error)}.` });
      for (const [path, { read }] of this.#files) reads.set(path, read);
      this.#failure = error;
    }
    if (this.#closed) return;
    this.#use(reads, problems);
    if (this.#failure !== undefined) {
      this.#retry = setTimeout(() => void this.#onSuspects("all"), RETRY_MS).unref();
    }
  }

  async #list(): Promise<string[]> {
    if (!this.#isFolder) return [this.#path];
    const names = await promises.readdir(this.#path);
    return names.filter((name) => /^[^.].*\.ya?ml$/.test(name)).map((name) => join(this.#path, name));
  }

  async #readAgain(path: string, suspect: boolean): Promise<ClusterFile | undefined> {
    const before = this.#files.get(path)?.read;
    if (before !== undefined && (!suspect || (await isUnchanged(before)))) return before;
    return await this.#read(path);
  }

  /** `undefined`: it has gone. */
  async #read(path: string): Promise<ClusterFile | undefined> {
    if (!this.#files.has(path)) this.#watch.follow(path, [path]);
    const text = await readText(path);
    if (text === undefined && this.#isFolder) {
      this.#watch.forget(path);
      return undefined;
    }
    if (typeof text !== "string") return unusable(path, text?.fault ?? "does not exist");
    const parsed = parseClusterFile(path, text);
    this.#watch.follow(path, parsed.paths);
    const loaded = loadClusterFile(parsed, this.#materials);
    return { ...loaded, clusters: loaded.clusters.map((cluster) => this.#asBefore(cluster)) };
  }

  /** A cluster that has not changed stays the same object. */
  #asBefore(cluster: Cluster): Cluster {
    const old = this.#clusters.get(cluster.name);
    const same =
      old !== undefined &&
      old.file === cluster.file &&
      old.document === cluster.document &&
      changesOf(old, cluster) === undefined;
    return same ? old : cluster;
  }

  #use(reads: ReadonlyMap<string, ClusterFile>, problems: ClusterProblem[]): void {
    const paths = new Set([...reads.keys(), ...this.#files.keys()]);
    const now = this.#flags();
    const { inUse, problems: conflicts } = settle(
      [...paths].sort().map((file) => {
        const read = reads.get(file);
        const next = read === undefined ? [] : read.faults.length > 0 ? undefined : read.clusters;
        return { file, before: this.#files.get(file)?.inUse ?? [], next };
      }),
      now,
      this.#settledBy,
    );
    if (conflicts.length === 0 || this.#settledBy === undefined) this.#settledBy = now;
    for (const file of this.#files.keys()) if (!reads.has(file)) this.#watch.forget(file);
    this.#files = new Map([...reads].map(([file, read]) => [file, { read, inUse: inUse.get(file) ?? [] }]));
    for (const [file, { faults }] of reads) problems.push(...faults.map((sentence) => ({ file, sentence })));
    this.#problems = [...problems, ...conflicts];
    this.#materials.retain(new Set([...reads.values()].flatMap(({ inputs }) => [...inputs.keys()])));
    this.#publish(new Map([...inUse.values()].flat().map((cluster) => [cluster.name, cluster])));
  }

  #logProblems(before: readonly ClusterProblem[]): void {
    const known = new Set(before.map(keyOf));
    for (const problem of this.#problems) {
      if (known.has(keyOf(problem))) continue;
      const { file, sentence: reason } = problem;
      this.#log.error({ file, reason }, "a cluster file is not usable, what it said before stays in use");
    }
    const wrong = new Set(this.#problems.map(({ file }) => file));
    const mended = new Set(before.map(({ file }) => file).filter((file) => !wrong.has(file)));
    for (const file of mended) this.#log.info({ file }, "a cluster file is usable again");
  }

  #publish(now: ReadonlyMap<string, Cluster>): void {
    const before = this.#clusters;
    this.#clusters = now;
    this.#agentNames = namesOf(now, "agents");
    this.#callerNames = namesOf(now, "callers");
    const listener = this.#listener;
    if (listener === undefined) return;
    for (const cluster of before.values()) if (!now.has(cluster.name)) listener.onRemoved(cluster);
    for (const cluster of now.values()) {
      const old = before.get(cluster.name);
      const what = old === undefined || old === cluster ? undefined : changesOf(old, cluster);
      if (old !== undefined && what !== undefined) listener.onChanged(cluster, old, what);
    }
    for (const cluster of now.values()) if (!before.has(cluster.name)) listener.onAdded(cluster);
  }
}

function namesOf(clusters: ReadonlyMap<string, Cluster>, side: "agents" | "callers"): ServerNames<Cluster> {
  return new ServerNames([...clusters.values()].map((cluster) => ({ value: cluster, names: cluster[side].sni })));
}

/** Are all files that it was made of as they were? One that could not be used is read again each time. */
async function isUnchanged({ inputs, faults }: ClusterFile): Promise<boolean> {
  if (faults.length > 0) return false;
  for (const [path, content] of inputs) if ((await readText(path)) !== content) return false;
  return true;
}

/** `undefined`: there is no such file. */
async function readText(path: string): Promise<string | { readonly fault: string } | undefined> {
  try {
    return (await readBounded(path)).toString("utf8");
  } catch (error) {
    if (descriptorShortage(error)) throw error; // which says nothing of this file
    const { code } = error as NodeJS.ErrnoException;
    return code === "ENOENT" ? undefined : { fault: whyUnreadable(error as NodeJS.ErrnoException) };
  }
}

function unusable(path: string, fault: string): ClusterFile {
  return { clusters: [], faults: [`it ${fault}.`], inputs: new Map([[path, ""]]) };
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error;
}

function whyUnreadable(error: NodeJS.ErrnoException): string {
  const { code } = error;
  if (error instanceof FileTooLargeError) return "is larger than 4 MiB: give each cluster a file of its own";
  if (code === "ENOENT") return "does not exist";
  if (code === "EISDIR") return "is a directory, and a file is expected";
  return code === "EACCES" ? "is not readable for this user" : `cannot be read: ${readFailure(error)}`;
}

function keyOf({ file, sentence }: ClusterProblem): string {
  return `${file}\n${sentence}`;
}
