import { ConfigError } from "../../shared/config/options.ts";
import { DocumentStore } from "../../shared/documents/document-store.ts";
import type { FileLog, WatchTiming } from "../../shared/documents/file-watcher.ts";
import type { DocumentProblem } from "../../shared/documents/resolve-conflicts.ts";
import { type Cluster, type ClusterChanges, changesOf, ServerNames, type SideName } from "./cluster.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";
import { type FlagAuthorities, resolveClusters } from "./reservations.ts";

/**
 * Called for each difference; after one change of the files first for removed, then for changed, then for added ones.
 */
export interface ClusterListener {
  onAdded(cluster: Cluster): void;
  onChanged(cluster: Cluster, what: ClusterChanges): void;
  onRemoved(cluster: Cluster): void;
}

interface StoreOptions {
  readonly timing?: Partial<WatchTiming> | undefined;
  /** The CAs that verify clients of a side without a CA of its own. */
  readonly flags?: () => FlagAuthorities;
}

type SideNames = Readonly<Record<SideName, ServerNames<Cluster>>>;

/** The clusters of `--clusters DIR_OR_FILE`, kept as their files are. */
export class ClusterStore {
  readonly #documents: DocumentStore<Cluster>;
  #clusters: ReadonlyMap<string, Cluster> = new Map();
  #names = namesOf([]);
  #listener: ClusterListener | undefined;

  /** Reads all files and begins to watch them; rejects with a `ConfigError` that has every fault found. */
  static async open(
    path: string,
    log: FileLog,
    { timing, flags = () => ({}) }: StoreOptions = {},
  ): Promise<ClusterStore> {
    const materials = new MaterialFiles();
    let store: ClusterStore | undefined;
    const documents = await DocumentStore.open<Cluster>({
      path,
      log,
      timing,
      kind: "a cluster file",
      tooLarge: "give each cluster a file of its own",
      parse: (file, text) => parseClusterFile(file, text, materials),
      resolve: (candidates, inputs) => {
        materials.retain(inputs);
        return resolveClusters(candidates, flags());
      },
      onChecked: () => {
        if (store !== undefined) store.#publish();
      },
    });
    if (documents.problems.length > 0) {
      documents.close();
      throw new ConfigError(documents.problemsOf("--clusters"), { cause: documents.failure });
    }
    store = new ClusterStore(documents);
    store.#publish();
    return store;
  }

  private constructor(documents: DocumentStore<Cluster>) {
    this.#documents = documents;
  }

  /** By name; another map after each change. */
  get clusters(): ReadonlyMap<string, Cluster> {
    return this.#clusters;
  }

  /** SNI → cluster on the port of each side; renewed before the listener is called. */
  get names(): SideNames {
    return this.#names;
  }

  problems(): readonly DocumentProblem[] {
    return this.#documents.problems;
  }

  /** Calls the listener for each cluster there is, and from now on for each difference. */
  listen(listener: ClusterListener): void {
    this.#listener = listener;
    for (const cluster of this.#clusters.values()) listener.onAdded(cluster);
  }

  /** Call it when the CAs of the flags have changed, and with them which clusters can be in use together. */
  resolveAgain(): Promise<void> {
    return this.#documents.resolveAgain();
  }

  close(): void {
    this.#documents.close();
  }

  #publish(): void {
    const before = this.#clusters;
    const now = new Map(this.#documents.documents.map((cluster) => [cluster.name, cluster]));
    this.#clusters = now;
    this.#names = namesOf(now.values());
    const listener = this.#listener;
    if (listener === undefined) return;
    for (const cluster of before.values()) if (!now.has(cluster.name)) listener.onRemoved(cluster);
    for (const cluster of now.values()) {
      const old = before.get(cluster.name);
      const what = old === undefined || old === cluster ? undefined : changesOf(old, cluster);
      if (what !== undefined) listener.onChanged(cluster, what);
    }
    for (const cluster of now.values()) if (!before.has(cluster.name)) listener.onAdded(cluster);
  }
}

function namesOf(clusters: Iterable<Cluster>): SideNames {
  const all = [...clusters];
  const of = (side: SideName) => new ServerNames(all.map((cluster) => ({ value: cluster, names: cluster[side].sni })));
  return { agents: of("agents"), callers: of("callers") };
}
