import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../shared/basics/testing/wait.ts";
import type { WatchTiming } from "../../../shared/documents/file-watcher.ts";
import { Authority } from "../../../shared/pki/certificates.ts";
import type { Cluster, ClusterChanges } from "../cluster.ts";
import { type ClusterListener, ClusterStore } from "../store.ts";

/** Only events, unless a directory is missing: a poll must not hide a missed event. */
export const FAST: WatchTiming = { settleMs: 10, pollMs: 60_000, missingPollMs: 20 };

/** A folder of cluster files, a store of it and what the store's listener was told. */
export class ClusterFolder implements ClusterListener, AsyncDisposable {
  readonly path: string;
  readonly events: string[] = [];
  readonly changes = new Map<string, ClusterChanges>();
  readonly logged: string[] = [];
  store!: ClusterStore;

  private constructor(path: string) {
    this.path = path;
  }

  static async create(files: Readonly<Record<string, string>> = {}): Promise<ClusterFolder> {
    const folder = new ClusterFolder(await mkdtemp(join(tmpdir(), "culvert-clusters-")));
    for (const [name, text] of Object.entries(files)) await folder.write(name, text);
    return folder;
  }

  at(name: string): string {
    return join(this.path, name);
  }

  async write(name: string, text: string): Promise<void> {
    await writeFile(this.at(name), text);
  }

  async open(path = this.path, timing = FAST): Promise<ClusterStore> {
    this.store = await ClusterStore.open(
      path,
      {
        info: (fields, message) => this.logged.push(`${message}: ${JSON.stringify(fields)}`),
        error: (fields, message) => this.logged.push(`${message}: ${JSON.stringify(fields)}`),
      },
      { timing },
    );
    this.store.listen(this);
    this.events.length = 0;
    return this.store;
  }

  /** Waits until the listener has been told this, in this order and nothing else; and forgets it. */
  async emits(...expected: string[]): Promise<void> {
    await until(
      () => this.events.length >= expected.length,
      () => `events ${this.events}, expected ${expected}`,
    );
    const events = this.events.splice(0);
    if (events.join() !== expected.join()) throw new Error(`events ${events}, expected ${expected}`);
  }

  /** The same in any order: of changes that may be seen one after the other. */
  async emitsAll(...expected: string[]): Promise<void> {
    await until(
      () => this.events.length >= expected.length,
      () => `events ${this.events}, expected ${expected}`,
    );
    this.events.sort();
    await this.emits(...expected.sort());
  }

  /** Waits until the problems are those whose sentences these patterns match. */
  async hasProblems(...expected: RegExp[]): Promise<void> {
    const fits = () => {
      const problems = this.store.problems();
      return problems.length === expected.length && problems.every(({ sentence }, at) => expected[at]?.test(sentence));
    };
    await until(fits, () => JSON.stringify(this.store.problems()));
  }

  onAdded({ name }: Cluster): void {
    this.events.push(`+${name}`);
  }

  onChanged({ name }: Cluster, what: ClusterChanges): void {
    this.events.push(`~${name}`);
    this.changes.set(name, what);
  }

  onRemoved({ name }: Cluster): void {
    this.events.push(`-${name}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.store?.close();
    await rm(this.path, { recursive: true, force: true });
  }
}

/** The text of a cluster that stands beside others: with names of its own, and identities. */
export function clusterText(name: string, more = ""): string {
  return `
name: ${name}
agents:
  sni: [${name}.agents.example]
  identities: ["CN=${name}"]
callers:
  sni: [${name}.callers.example]
  identities: ["CN=caller-of-${name}"]
${more}`;
}

/** An authority and a certificate of it, all PEM. */
export async function newMaterial(name: string): Promise<{ ca: string; cert: string; key: string }> {
  const authority = await Authority.create(`CA of ${name}`);
  const { cert, key } = await authority.issue({ cn: name, names: [name], usage: "server" });
  return { ca: authority.cert, cert, key };
}
