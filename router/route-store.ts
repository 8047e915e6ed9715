import { promises } from "node:fs";
import { join } from "node:path";
import { FileTooLargeError, readBounded, readFailure } from "../shared/documents/read-bounded.ts";
import { descriptorShortage } from "../shared/limits/file-descriptors.ts";
import { parseRoutes, type RouteDocuments } from "./route-document.ts";
import { type Route, RouteTable } from "./routes.ts";
import { settleRoutes } from "./settle-routes.ts";

export interface RouteStoreOptions {
  /** A file, or a directory of which `*.yaml` and `*.yml` are read. */
  readonly path: string;
  /** Routes were read again, or begin to lack a descriptor for it; `faults` are those that have just been found. */
  onRead(faults: readonly string[]): void;
  /** How often the files are looked at, ms. */
  readonly lookMs?: number;
}

const LOOK_MS = 500;
const MAX_FILE_BYTES = 1_048_576;

/** A file at one moment: its documents, and what differs when its content does. */
interface Known {
  readonly signature: string;
  readonly documents: RouteDocuments;
}

/**
 * The routes as their files hold them now. Files come and go in the directory, and a mounted ConfigMap changes all of them
 * with one link, so each is looked at by inode, size and times: a few hundred `stat` in half a second cost nothing, miss
 * nothing and work on network file systems. Two looks must agree: half an edit is not read. Keeps no process alive.
 */
export class RouteStore {
  readonly #options: RouteStoreOptions;
  #table = new RouteTable([]);
  #faults: readonly string[] = [];
  /** The fault of files that wait for a file descriptor to be read with. */
  #lack: string | undefined;
  #known = new Map<string, Known>();
  #inUse: ReadonlyMap<string, readonly Route[]> = new Map();
  /** What the look before saw. */
  #seen = "";
  #read = "";
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(options: RouteStoreOptions) {
    this.#options = options;
  }

  /** Reads the routes once; the faults found are in `faults`. Rejects without a file descriptor to read them with. */
  static async open(options: RouteStoreOptions): Promise<RouteStore> {
    const store = new RouteStore(options);
    await store.#readNow(await signatures(options.path));
    store.#schedule();
    return store;
  }

  get table(): RouteTable {
    return this.#table;
  }

  /** Why files as they are now are not in use. */
  get faults(): readonly string[] {
    return this.#lack === undefined ? this.#faults : [...this.#faults, this.#lack];
  }

  get files(): number {
    return this.#inUse.size;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (!this.#closed) this.#timer = setTimeout(() => void this.#look(), this.#options.lookMs ?? LOOK_MS).unref();
  }

  async #look(): Promise<void> {
    try {
      await this.#readChanged();
    } catch (error) {
      if (!descriptorShortage(error)) throw error;
      // What was read stays, and it is tried again at the next look: the files may be good.
      const isNew = this.#lack === undefined;
      this.#lack = `${this.#options.path}: its routes cannot be read: ${readFailure(error)}.`;
      this.#read = "";
      if (isNew && !this.#closed) this.#options.onRead([this.#lack]);
    }
    this.#schedule();
  }

  async #readChanged(): Promise<void> {
    const now = await signatures(this.#options.path);
    const seen = JSON.stringify([...now.files, now.fault]);
    const settled = seen === this.#seen;
    this.#seen = seen;
    if (settled && seen !== this.#read && !this.#closed) {
      const before = new Set(this.#faults);
      await this.#readNow(now);
      this.#lack = undefined;
      if (!this.#closed) this.#options.onRead(this.#faults.filter((fault) => !before.has(fault)));
    }
  }

  async #readNow(now: Signatures): Promise<void> {
    this.#read = JSON.stringify([...now.files, now.fault]);
    if (now.fault !== undefined) {
      this.#faults = [now.fault]; // what was read stays
      return;
    }
    const known = new Map<string, Known>();
    for (const [path, signature] of now.files) {
      const before = this.#known.get(path);
      // Only what has changed is parsed: that is the expensive part.
      known.set(path, before?.signature === signature ? before : { signature, documents: await readRoutes(path) });
    }
    this.#known = known;
    const files = [...known].map(([path, { documents }]) => ({ path, documents, inUse: this.#inUse.get(path) ?? [] }));
    const { table, inUse, faults } = settleRoutes(files);
    this.#table = table;
    this.#inUse = inUse;
    this.#faults = faults;
  }
}

interface Signatures {
  /** By path, in the order of names. */
  readonly files: ReadonlyMap<string, string>;
  /** Nothing can be read there. */
  readonly fault?: string;
}

async function signatures(path: string): Promise<Signatures> {
  try {
    const isFolder = (await promises.stat(path)).isDirectory();
    const paths = isFolder ? routeFiles(path, await promises.readdir(path)) : [path];
    const files = await Promise.all(paths.map(async (file) => [file, await signature(file)] as const));
    return { files: new Map(files.filter((file): file is [string, string] => file[1] !== undefined)) };
  } catch (error) {
    if (descriptorShortage(error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const fault =
      code === "ENOENT" ? "does not exist: give --routes a file or a directory" : `cannot be read (${code})`;
    return { files: new Map(), fault: `${path}: ${fault}.` };
  }
}

function routeFiles(folder: string, names: readonly string[]): string[] {
  const wanted = names.filter((name) => /^[^.].*\.ya?ml$/.test(name));
  return wanted.sort().map((name) => join(folder, name));
}

/** `undefined` for one that has just gone. */
async function signature(path: string): Promise<string | undefined> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await promises.stat(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(":");
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? undefined : "unreadable";
  }
}

async function readRoutes(path: string): Promise<RouteDocuments> {
  try {
    return parseRoutes((await readBounded(path, MAX_FILE_BYTES)).toString("utf8"));
  } catch (error) {
    if (descriptorShortage(error)) throw error; // else it would stay unread until it changes
    if (error instanceof FileTooLargeError) return { faults: [`${error.message}: put its routes into several files.`] };
    return { faults: [`it cannot be read: ${readFailure(error)}.`] };
  }
}
