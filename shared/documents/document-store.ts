import { promises } from "node:fs";
import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { descriptorShortage } from "../limits/descriptor-shortage.ts";
import { type FileLog, FileWatcher, type Suspects, type WatchTiming } from "./file-watcher.ts";
import { FileTooLargeError, MAX_FILE_BYTES, readBounded, readFailure } from "./read-bounded.ts";
import type { DocumentProblem, FileCandidate, Resolved } from "./resolve-conflicts.ts";

/** The contents of a file, and of the files that its documents name. */
export interface FileContent<T> {
  readonly documents: readonly T[];
  /** Sentences, each with the path of a key. If there is one, the file is not used. */
  readonly faults: readonly string[];
  /** The contents that all this was made of, by their paths; "" for a named file that could not be used. */
  readonly inputs: ReadonlyMap<string, string>;
}

/** A file whose named files have not been read yet. */
export interface ParsedFile<T> {
  /** The files that its documents name. */
  readonly paths: readonly string[];
  load(): FileContent<T>;
}

interface DocumentStoreOptions<T> {
  /** A file, or a directory of which `*.yaml` and `*.yml` are read. */
  readonly path: string;
  readonly log: FileLog;
  /** The kind of file in log messages, such as `a cluster file`. */
  readonly kind: string;
  readonly maxBytes?: number;
  /** Continues "is larger than 4 MiB: ". */
  readonly tooLarge: string;
  readonly timing?: Partial<WatchTiming> | undefined;
  parse(file: string, text: string): ParsedFile<T>;
  /** Decides which files are used together. `inputs` are all files that were read. */
  resolve(candidates: readonly FileCandidate<T>[], inputs: ReadonlySet<string>): Resolved<T>;
  /** Called after each check that found a difference. */
  onChecked(): void;
}

/** A file as it was read last, and those of its documents that are in use. */
interface KnownFile<T> {
  readonly content: FileContent<T>;
  readonly inUse: readonly T[];
}

/** Problems shown when a start fails. */
const MAX_PROBLEMS = 20;
/** A check that failed is repeated after this time, because no event may follow, ms. */
const RETRY_MS = 1_000;

/**
 * The YAML documents of a file or a directory, kept as their files are. A file that cannot be used keeps its last
 * version and is a problem until it can; no other file is affected.
 *
 * ```
 *  files change ─▶ suspects are read again ─▶ which can be in use together ─▶ onChecked
 *   FileWatcher     parse, load                resolve
 * ```
 */
export class DocumentStore<T> {
  readonly #options: DocumentStoreOptions<T>;
  readonly #path: string;
  readonly #watcher: FileWatcher<string>;
  #files: ReadonlyMap<string, KnownFile<T>> = new Map();
  #problems: readonly DocumentProblem[] = [];
  #checking: Promise<void> = Promise.resolve();
  /** Why the last check failed. */
  #failure: NodeJS.ErrnoException | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  /** Reads all files and begins to watch them. Faults are in `problems`. */
  static async open<T>(options: DocumentStoreOptions<T>): Promise<DocumentStore<T>> {
    const store = new DocumentStore(options);
    await store.#inTurn(() => store.#check("all"));
    return store;
  }

  private constructor(options: DocumentStoreOptions<T>) {
    const { path, timing } = options;
    this.#options = options;
    this.#path = resolve(path);
    this.#watcher = new FileWatcher((suspects) => this.#onSuspects(suspects), { folder: this.#path, timing });
  }

  /** All documents in use, in the order of the files. */
  get documents(): readonly T[] {
    return [...this.#files.values()].flatMap(({ inUse }) => inUse);
  }

  /** Number of files. */
  get size(): number {
    return this.#files.size;
  }

  get problems(): readonly DocumentProblem[] {
    return this.#problems;
  }

  /** The error of the file system because of which nothing could be read. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** The problems of a start, as sentences that begin with the option. */
  problemsOf(option: string): string[] {
    const problems = this.#problems.map(({ file, sentence }) => `${option}: ${file}: ${sentence}`);
    const more = problems.length - MAX_PROBLEMS;
    if (more <= 0) return problems;
    const rest = `These are the first ${MAX_PROBLEMS} faults of ${option}, ${more} more follow.`;
    return [...problems.slice(0, MAX_PROBLEMS), rest];
  }

  /** Resolves conflicts again although no file has changed. */
  resolveAgain(): Promise<void> {
    return this.#onSuspects(new Set(), true);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#watcher.close();
  }

  #onSuspects(suspects: Suspects<string>, always = false): Promise<void> {
    return this.#inTurn(async () => {
      const before = this.#problems;
      if (!(await this.#check(suspects, always))) return;
      this.#logProblems(before);
      this.#options.onChecked();
    });
  }

  /** One check waits for the last. */
  #inTurn(check: () => Promise<unknown>): Promise<void> {
    this.#checking = this.#checking.then(async () => void (await check()));
    return this.#checking;
  }

  /** Reads again what may have changed. False if nothing has. */
  async #check(suspects: Suspects<string>, always = false): Promise<boolean> {
    const failed = this.#failure !== undefined;
    // The suspects of a check that failed are reported no more.
    const isSuspect = (path: string): boolean => suspects === "all" || failed || suspects.has(path);
    const contents = new Map<string, FileContent<T>>();
    const problems: DocumentProblem[] = [];
    clearTimeout(this.#retry);
    try {
      for (const path of await this.#list()) {
        const content = await this.#readAgain(path, isSuspect(path));
        if (content !== undefined) contents.set(path, content);
      }
      this.#failure = undefined;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      // Without a list or a file descriptor nothing is known about any document: all stay.
      problems.push({ file: this.#path, sentence: `it ${this.#whyUnreadable(error)}.` });
      for (const [path, { content }] of this.#files) contents.set(path, content);
      this.#failure = error;
      this.#retry = setTimeout(() => void this.#onSuspects("all"), RETRY_MS).unref();
    }
    if (this.#closed) return false;
    const isSame =
      contents.size === this.#files.size &&
      [...contents].every(([path, content]) => this.#files.get(path)?.content === content);
    if (isSame && !always && !failed && this.#failure === undefined) return false;
    this.#use(contents, problems);
    return true;
  }

  async #list(): Promise<string[]> {
    const names = await promises.readdir(this.#path).catch((error: NodeJS.ErrnoException) => {
      // A file that has gone is a fault of that file: it is logged once.
      const isFile = error.code === "ENOTDIR" || (error.code === "ENOENT" && this.#files.has(this.#path));
      if (!isFile) throw error;
    });
    if (names === undefined) return [this.#path];
    return names.filter((name) => /^[^.].*\.ya?ml$/.test(name)).map((name) => join(this.#path, name));
  }

  async #readAgain(path: string, isSuspect: boolean): Promise<FileContent<T> | undefined> {
    const before = this.#files.get(path)?.content;
    if (before !== undefined && (!isSuspect || (await this.#isUnchanged(before)))) return before;
    const now = await this.#read(path);
    const isSame = before !== undefined && now !== undefined && before.faults.length > 0 && hasSameFaults(before, now);
    return isSame ? before : now;
  }

  /** `undefined` if the file has gone. */
  async #read(path: string): Promise<FileContent<T> | undefined> {
    if (!this.#files.has(path)) this.#watcher.follow(path, [path]);
    const text = await this.#readText(path);
    if (text === undefined && path !== this.#path) {
      this.#watcher.forget(path);
      return undefined;
    }
    if (typeof text !== "string") {
      const fault = `it ${text?.fault ?? "does not exist"}.`;
      return { documents: [], faults: [fault], inputs: new Map([[path, ""]]) };
    }
    const parsed = this.#options.parse(path, text);
    this.#watcher.follow(path, [path, ...parsed.paths]);
    const { documents, faults, inputs } = parsed.load();
    return { documents, faults, inputs: new Map([[path, text], ...inputs]) };
  }

  /** Whether all files that it was made of are as they were. A file with faults is read again each time. */
  async #isUnchanged({ inputs, faults }: FileContent<T>): Promise<boolean> {
    if (faults.length > 0) return false;
    for (const [path, content] of inputs) if ((await this.#readText(path)) !== content) return false;
    return true;
  }

  /** `undefined` if there is no such file. */
  async #readText(path: string): Promise<string | { readonly fault: string } | undefined> {
    try {
      return (await readBounded(path, this.#options.maxBytes)).toString("utf8");
    } catch (error) {
      if (descriptorShortage(error)) throw error; // which says nothing about this file
      const { code } = error as NodeJS.ErrnoException;
      return code === "ENOENT" ? undefined : { fault: this.#whyUnreadable(error as NodeJS.ErrnoException) };
    }
  }

  #use(contents: ReadonlyMap<string, FileContent<T>>, problems: DocumentProblem[]): void {
    const paths = new Set([...contents.keys(), ...this.#files.keys()]);
    const candidates = [...paths].sort().map((file) => {
      const content = contents.get(file);
      const next = content === undefined ? [] : content.faults.length > 0 ? undefined : content.documents;
      return { file, before: this.#files.get(file)?.inUse ?? [], next };
    });
    const inputs = new Set([...contents.values()].flatMap((content) => [...content.inputs.keys()]));
    const { inUse, problems: conflicts } = this.#options.resolve(candidates, inputs);
    for (const file of this.#files.keys()) if (!contents.has(file)) this.#watcher.forget(file);
    this.#files = new Map(
      [...inUse].flatMap(([file, documents]) => {
        const content = contents.get(file);
        return content === undefined ? [] : [[file, { content, inUse: documents }]];
      }),
    );
    for (const [file, { faults }] of contents) problems.push(...faults.map((sentence) => ({ file, sentence })));
    this.#problems = [...problems, ...conflicts];
  }

  #logProblems(before: readonly DocumentProblem[]): void {
    const { log, kind } = this.#options;
    const known = new Set(before.map(keyOf));
    for (const problem of this.#problems) {
      if (known.has(keyOf(problem))) continue;
      const { file, sentence: reason } = problem;
      log.error({ file, reason }, `${kind} cannot be used; its last version stays in use`);
    }
    const faulty = new Set(this.#problems.map(({ file }) => file));
    const mended = new Set(before.map(({ file }) => file).filter((file) => !faulty.has(file)));
    for (const file of mended) log.info({ file }, `${kind} can be used again`);
  }

  #whyUnreadable(error: NodeJS.ErrnoException): string {
    const { code } = error;
    if (error instanceof FileTooLargeError) {
      const mebibytes = (this.#options.maxBytes ?? MAX_FILE_BYTES) / 1_048_576;
      return `is larger than ${mebibytes} MiB: ${this.#options.tooLarge}`;
    }
    if (code === "ENOENT") return "does not exist";
    if (code === "EISDIR") return "is a directory, and a file is expected";
    return code === "EACCES" ? "is not readable for this user" : `cannot be read: ${readFailure(error)}`;
  }
}

/** Whether a file that cannot be used is as it was. */
function hasSameFaults(before: FileContent<unknown>, now: FileContent<unknown>): boolean {
  return isDeepStrictEqual([before.faults, before.inputs], [now.faults, now.inputs]);
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error;
}

function keyOf({ file, sentence }: DocumentProblem): string {
  return `${file}\n${sentence}`;
}
