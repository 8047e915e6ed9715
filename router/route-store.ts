import { ConfigError } from "../shared/config/options.ts";
import { type DocumentLog, DocumentStore } from "../shared/documents/document-store.ts";
import type { WatchTiming } from "../shared/documents/file-watcher.ts";
import { type FileCandidate, type Resolved, resolveConflicts } from "../shared/documents/resolve-conflicts.ts";
import { parseRoutes, type Route, RouteTable, routeReservations } from "./routes.ts";

export interface RouteStoreOptions {
  /** A file, or a directory of which `*.yaml` and `*.yml` are read. */
  readonly path: string;
  readonly log: DocumentLog;
  readonly timing?: Partial<WatchTiming>;
  /** Called after changed files were read, or could not be. */
  onRead(): void;
}

const MAX_FILE_BYTES = 1_048_576;
/** Routes are few files, and on a network file system without events a change is expected to count at once. */
const POLL_MS = 1_000;

/** The routes of `--routes`, kept as their files are. */
export class RouteStore {
  readonly #documents: DocumentStore<Route>;
  #table: RouteTable;

  /** Reads all files and begins to watch them; rejects with a `ConfigError` that has every fault found. */
  static async open({ path, log, timing, onRead }: RouteStoreOptions): Promise<RouteStore> {
    let store: RouteStore | undefined;
    const documents = await DocumentStore.open<Route>({
      ...{ path, log, kind: "a route file", maxBytes: MAX_FILE_BYTES },
      timing: { pollMs: POLL_MS, ...timing },
      tooLarge: "put its routes into several files",
      parse: (_file, text) => {
        const { routes, faults } = parseRoutes(text);
        return { paths: [], load: () => ({ documents: routes, faults, inputs: new Map() }) };
      },
      resolve: resolveRoutes,
      onChecked: () => {
        if (store !== undefined) store.#table = new RouteTable(documents.documents);
        onRead();
      },
    });
    if (documents.problems.length > 0) {
      documents.close();
      throw new ConfigError(documents.problemsOf("--routes"), { cause: documents.failure });
    }
    store = new RouteStore(documents);
    return store;
  }

  private constructor(documents: DocumentStore<Route>) {
    this.#documents = documents;
    this.#table = new RouteTable(documents.documents);
  }

  get table(): RouteTable {
    return this.#table;
  }

  /** Why files are not in use as they are now. */
  get faults(): readonly string[] {
    return this.#documents.problems.map(({ file, sentence }) => `${file}: ${sentence}`);
  }

  /** Number of files. */
  get files(): number {
    return this.#documents.size;
  }

  close(): void {
    this.#documents.close();
  }
}

/** Decides which files of routes can be in use together: a mistake in one file must not affect the routes of others. */
export function resolveRoutes(candidates: readonly FileCandidate<Route>[]): Resolved<Route> {
  return resolveConflicts(candidates, { reservationsOf: routeReservations, prefix: () => "", wasResolved: true });
}
