import { ConfigError } from "../../shared/config/options.ts";
import { DocumentStore } from "../../shared/documents/document-store.ts";
import type { FileLog, WatchTiming } from "../../shared/documents/file-watcher.ts";
import type { DocumentProblem } from "../../shared/documents/resolve-conflicts.ts";
import { type Cluster, type ClusterChanges, changesOf, ServerNames, type SideName } from "./cluster.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";
import { type FlagAuthorities, NO_FLAGS, resolveClusters } from "./reservations.ts";

/**
 * Called for each difference; after one change of the files first for removed, then for changed, then for added ones.
 */
export interface ClusterListener {
  onAdded(cluster: Cluster): void;
  onChanged(cluster: Cluster, before: Cluster, what: ClusterChanges): void;
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
    { timing, flags = () => NO_FLAGS }: StoreOptions = {},
  ): Promise<ClusterStore> {
    const materials = new MaterialFiles();
    /** The flags by which all clusters in use were found to have no conflicts. */
    let resolvedBy: FlagAuthorities | undefined;
    let store: ClusterStore | undefined;
    const documents = await DocumentStore.open<Cluster>({
      path,
      log,
      timing,
      kind: "a cluster file",
      tooLarge: "give each cluster a file of its own",
      parse: (file, text) => {
        const { paths, load } = parseClusterFile(file, text, materials);
        return {
          paths,
          load: () => {
            const content = load();
            return { ...content, documents: content.documents.map((cluster) => asBefore(store, cluster)) };
          },
        };
      },
      resolve: (candidates, inputs) => {
        const now = flags();
        const resolved = resolveClusters(candidates, now, resolvedBy);
        if (resolved.problems.length === 0 || resolvedBy === undefined) resolvedBy = now;
        materials.retain(inputs);
        return resolved;
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
      if (old !== undefined && what !== undefined) listener.onChanged(cluster, old, what);
    }
    for (const cluster of now.values()) if (!before.has(cluster.name)) listener.onAdded(cluster);
  }
}

function namesOf(clusters: Iterable<Cluster>): SideNames {
  const all = [...clusters];
  const of = (side: SideName) => new ServerNames(all.map((cluster) => ({ value: cluster, names: cluster[side].sni })));
  return { agents: of("agents"), callers: of("callers") };
}

/** The object of a cluster that has not changed. */
function asBefore(store: ClusterStore | undefined, cluster: Cluster): Cluster {
  const old = store?.clusters.get(cluster.name);
  const isSame =
    old !== undefined &&
    old.file === cluster.file &&
    old.document === cluster.document &&
    changesOf(old, cluster) === undefined;
  return isSame ? old : cluster;
}
