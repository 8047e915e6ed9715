import type { ServerResponse } from "node:http";
import { setImmediate as nextTurn, setTimeout as pause } from "node:timers/promises";

/** At most one message a second, for all readers together. */
const INTERVAL_MS = 1_000;
/** Facts that are made and written down at once, 0.1 ms of work; then a millisecond belongs to connections alone. */
const AT_ONCE = 4;
const PAUSE_MS = 1;

/** Facts of a feed by key; `undefined`: it is gone. */
type FactSource = Iterable<readonly [key: string, fact: unknown]>;

export interface FeedSource {
  /** Facts for all readers; those that are not among them are as before. */
  all(): FactSource;
  /** Further facts for readers of this cluster. A key that is missing in the next answer is gone. */
  ofCluster(name: string): FactSource;
  /** The last reader has gone. */
  stop(): void;
}

/** Facts as JSON, and which of them have changed. */
class WrittenFacts {
  readonly #texts = new Map<string, string>();

  /** Reads the source, a little at a time. Resolves with the message about what is new; empty: nothing is. */
  async update(source: FactSource): Promise<string> {
    const changed: string[] = [];
    let count = 0;
    for (const [key, fact] of source) {
      if (++count % AT_ONCE === 0) await pause(PAUSE_MS);
      const text: string | undefined = JSON.stringify(fact);
      if (this.#texts.get(key) === text) continue;
      if (text === undefined) this.#texts.delete(key);
      else this.#texts.set(key, text);
      changed.push(`${JSON.stringify(key)}:${text ?? null}`);
    }
    return changed.join(",");
  }

  /** The facts of the source, and `undefined` for each known key that it no longer has. */
  *withGone(source: FactSource): FactSource {
    const gone = new Set(this.#texts.keys());
    for (const entry of source) {
      gone.delete(entry[0]);
      yield entry;
    }
    for (const key of gone) yield [key, undefined];
  }

  /** The message that has them all. */
  whole(): string {
    return Array.from(this.#texts, ([key, text]) => `${JSON.stringify(key)}:${text}`).join(",");
  }
}

interface Reader {
  readonly response: ServerResponse;
  readonly cluster: string;
  /** It was slow, and has missed changes. */
  hasMissed: boolean;
}

/**
 * Tells the readers of the page what is new, as server-sent events (HTML, 9.2). Nothing is looked at while there is no
 * reader, and no agent is asked for anything.
 */
export class Feed {
  readonly #source: FeedSource;
  readonly #readers = new Set<Reader>();
  #all = new WrittenFacts();
  readonly #ofClusters = new Map<string, WrittenFacts>();
  #timer: NodeJS.Timeout | undefined;
  #isTelling = false;

  constructor(source: FeedSource) {
    this.#source = source;
  }

  /** `cluster`: what the reader looks at; empty: the list alone. */
  add(response: ServerResponse, cluster: string): void {
    const reader = { response, cluster, hasMissed: false };
    this.#readers.add(reader);
    response.on("close", () => this.#readers.delete(reader));
    response.on("error", () => {}); // an error closes it, which is enough
    this.#write(reader, this.#whole(cluster)); // what is not known yet comes with the next message
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => void this.#tell(), INTERVAL_MS).unref();
    void this.#tell();
  }

  #whole(cluster: string): Buffer {
    return eventOf("all", [this.#all.whole(), this.#ofClusters.get(cluster)?.whole() ?? ""]);
  }

  get readers(): number {
    return this.#readers.size;
  }

  async #tell(): Promise<void> {
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      if (this.#readers.size === 0) this.#stop();
      else await this.#tellAll();
    } finally {
      this.#isTelling = false;
    }
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#source.stop();
    this.#all = new WrittenFacts();
    this.#ofClusters.clear();
  }

  async #tellAll(): Promise<void> {
    const changes = await this.#all.update(this.#source.all());
    const changesOf = new Map<string, string>();
    const looked = new Set(Array.from(this.#readers, ({ cluster }) => cluster).filter((name) => name !== ""));
    for (const name of this.#ofClusters.keys()) if (!looked.has(name)) this.#ofClusters.delete(name);
    for (const name of looked) {
      const written = this.#ofClusters.get(name) ?? new WrittenFacts();
      this.#ofClusters.set(name, written);
      changesOf.set(name, await written.update(written.withGone(this.#source.ofCluster(name))));
    }
    const messages = new Map<string, Buffer>();
    for (const reader of this.#readers) {
      const { cluster } = reader;
      const message = messages.get(cluster) ?? eventOf("changes", [changes, changesOf.get(cluster) ?? ""]);
      messages.set(cluster, message);
      this.#write(reader, message);
      await nextTurn(); // each write wakes another process; in between, other connections have their turn
    }
  }

  /**
   * A reader that is slow misses changes, and gets the whole again when it has taken what it was sent. The kernel ends
   * one that has gone without a word.
   */
  #write(reader: Reader, message: Buffer): void {
    const { response, cluster } = reader;
    if (response.writableNeedDrain) reader.hasMissed = true;
    else {
      response.write(reader.hasMissed ? this.#whole(cluster) : message);
      reader.hasMissed = false;
    }
  }
}

/** Without facts it is a sign of life, by which a lost reader is noticed. */
function eventOf(name: "all" | "changes", parts: readonly string[]): Buffer {
  const facts = parts.filter((part) => part !== "").join(",");
  return Buffer.from(`event: ${name}\ndata: {${facts}}\n\n`);
}
