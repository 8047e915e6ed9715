import { parseServerNamePattern } from "../shared/address/server-name.ts";
import { parseTarget, type Target } from "../shared/address/target.ts";
import { ConfigError } from "../shared/config/options.ts";
import { DocumentStore } from "../shared/documents/document-store.ts";
import type { FileLog, WatchTiming } from "../shared/documents/file-watcher.ts";
import {
  type FileCandidate,
  type Reservation,
  type Resolved,
  resolveConflicts,
} from "../shared/documents/resolve-conflicts.ts";
import { faultsOf, list, orIssue, parsed, section, validateDocuments } from "../shared/documents/schema.ts";

/** Names, and the backends that serve them. */
export interface Route {
  /** The first of its names, by which logs and metrics call it. */
  readonly name: string;
  /** Number of the document in a file of several documents. */
  readonly document?: number;
  /** Canonical; `*.x` covers every name that ends with `.x`. */
  readonly sni: readonly string[];
  readonly to: readonly Target[];
  readonly sendProxy: "v2" | "off";
}

const routeDocument = section({
  sni: list(parsed(parseServerNamePattern))
    .min(1, "is empty: name at least one server name")
    .transform(orIssue(withoutRepeats)),
  to: list(parsed(parseTarget))
    .min(1, "is empty: name at least one backend")
    .max(64, "names more than 64 backends: give a DNS name or an address of a Service in their place"),
  sendProxy: parsed(proxyProtocol).default("off"),
});

/** The routes of a file (docs/load-balancers.md), and its faults as sentences. */
export function parseRoutes(text: string): { readonly routes: readonly Route[]; readonly faults: readonly string[] } {
  const documents = validateDocuments(routeDocument, text);
  const routes = documents.flatMap(({ number, value }): Route[] =>
    value === undefined ? [] : [{ name: value.sni[0] ?? "", ...(number && { document: number }), ...value }],
  );
  return { routes, faults: faultsOf(documents) };
}

function withoutRepeats(names: readonly string[]): readonly string[] {
  const repeated = names.find((name, index) => names.indexOf(name) !== index);
  if (repeated !== undefined) throw new Error(`names "${repeated}" twice: leave one of them`);
  return names;
}

/** A scalar is text here. A tool may have turned the `off` of YAML 1.1 into `false`. */
function proxyProtocol(value: string): "v2" | "off" {
  if (value === "v2") return value;
  if (value === "off" || value === "false") return "off";
  throw new Error('needs "v2" or "off"');
}

/** Decides which files of routes can be in use together: a mistake in one file must not affect the routes of others. */
export function resolveRoutes(candidates: readonly FileCandidate<Route>[]): Resolved<Route> {
  return resolveConflicts(candidates, "route", routeReservations);
}

/** The names that a route cannot share with another one. Within one route they may overlap. */
function routeReservations({ sni }: Route): Reservation[] {
  return sni.flatMap((name) => {
    const reserved = { what: `sni "${name}"`, cure: "leave it in one route only" };
    const under = wildcardsOver(name).map((key): Reservation => ({ key, shares: "by names under it", ...reserved }));
    return [{ key: name, ...reserved }, ...under];
  });
}

/** All wildcards that cover this name, or every name that this wildcard covers. */
function wildcardsOver(name: string): string[] {
  const wildcards: string[] = [];
  for (let dot = name.indexOf(".", name.startsWith("*") ? 2 : 0); dot >= 0; dot = name.indexOf(".", dot + 1)) {
    wildcards.push(`*${name.slice(dot)}`);
  }
  return wildcards;
}

/** Name → route; there is no default. Names overlap only within one route, so their order does not matter. */
export class RouteTable {
  readonly routes: readonly Route[];
  readonly #exact = new Map<string, Route>();
  /** By the part after the star. */
  readonly #wildcards = new Map<string, Route>();

  constructor(routes: readonly Route[]) {
    this.routes = routes;
    for (const route of routes) {
      for (const name of route.sni) {
        if (name.startsWith("*")) this.#wildcards.set(name.slice(1), route);
        else this.#exact.set(name, route);
      }
    }
  }

  /** Takes a canonical name (`canonicalServerName`). */
  find(serverName: string): Route | undefined {
    const exact = this.#exact.get(serverName);
    if (exact !== undefined) return exact;
    for (let dot = serverName.indexOf("."); dot >= 0; dot = serverName.indexOf(".", dot + 1)) {
      const route = this.#wildcards.get(serverName.slice(dot));
      if (route !== undefined) return route;
    }
    return undefined;
  }
}

interface RouteStoreOptions {
  /** A file, or a directory of which `*.yaml` and `*.yml` are read. */
  readonly path: string;
  readonly log: FileLog;
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
      path,
      log,
      kind: "a route file",
      maxBytes: MAX_FILE_BYTES,
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
