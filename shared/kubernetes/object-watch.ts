import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";
import { firstIssue, jsonOf, schemaMessage } from "../basics/text.ts";
import { type KubeCollection, KubeFailure } from "./kube-collection.ts";

/** What is read of every object. */
export interface KubeObject {
  readonly metadata: { readonly name: string };
}

export interface ObjectWatchOptions<T extends KubeObject> {
  readonly collection: KubeCollection;
  readonly labelSelector: string;
  /** The fields that are used. */
  readonly schema: z.ZodType<T>;
  /** Called after each list and each change, with all objects. */
  onObjects(objects: readonly T[]): void;
  /** The API server could not be asked, or refused. It is asked again. */
  onFailure(failure: KubeFailure): void;
  /** Between the end of a watch and the next list, ms; up to twice as long, so that servers do not ask together. */
  readonly pauseMs?: number;
}

/** A watch ends after this time, and the objects are listed anew: a connection that is dead is noticed, too, s. */
const WATCH_S = 30;
/** Where there is no right to watch, this is how often is asked. */
const PAUSE_MS = 2_000;
/** While the API server fails the pause doubles up to this, ms. */
const MAX_PAUSE_MS = 30_000;
/** More objects than any number of servers makes. */
const MAX_OBJECTS = 10_000;

const ListObject = z.object({
  metadata: z.object({ resourceVersion: z.string().max(256) }),
  items: z.array(z.unknown()).max(MAX_OBJECTS),
});
const WatchEvent = z.object({ type: z.string(), object: z.unknown() });

/** Keeps the objects of a collection that have some labels: lists them, and follows their changes by a watch. */
export class ObjectWatch<T extends KubeObject> {
  readonly #options: ObjectWatchOptions<T>;
  readonly #closed = new AbortController();
  #objects = new Map<string, T>();
  #round = new AbortController();

  constructor(options: ObjectWatchOptions<T>) {
    this.#options = options;
  }

  start(): void {
    void this.#run();
  }

  /** Lists again at once, in place of what goes on. */
  listAgain(): void {
    this.#round.abort();
  }

  close(): void {
    this.#closed.abort();
  }

  async #run(): Promise<void> {
    const { signal: closed } = this.#closed;
    for (let failures = 0; !closed.aborted; ) {
      this.#round = new AbortController();
      const signal = AbortSignal.any([this.#round.signal, closed]);
      try {
        const version = await this.#list(signal);
        failures = 0;
        await this.#follow(version, signal);
      } catch (error) {
        if (!(error instanceof KubeFailure)) throw error;
        if (signal.aborted) continue;
        failures++;
        this.#options.onFailure(error);
      }
      const { pauseMs = PAUSE_MS } = this.#options;
      const ms = Math.min(MAX_PAUSE_MS, pauseMs * (1 + Math.random()) * 2 ** Math.max(0, failures - 1));
      await sleep(ms, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Resolves with the version of the list. */
  async #list(signal: AbortSignal): Promise<string> {
    const { collection, labelSelector } = this.#options;
    // Version 0: whatever the API server has in its cache will do, and costs etcd nothing.
    const answer = await collection.ask("list", { query: { labelSelector, resourceVersion: "0" }, signal });
    collection.requireSuccess(answer, "list");
    const list = ListObject.safeParse(jsonOf(answer.text), { error: schemaMessage });
    if (!list.success) throw collection.unexpected("a list", firstIssue(list.error));
    this.#objects = new Map(list.data.items.map((item) => this.#parsed(item)).map((one) => [one.metadata.name, one]));
    this.#options.onObjects([...this.#objects.values()]);
    return list.data.metadata.resourceVersion;
  }

  /** Resolves at the end of the watch. A failure of it alone is none: the next list says whether there is one. */
  async #follow(resourceVersion: string, signal: AbortSignal): Promise<void> {
    const { collection, labelSelector } = this.#options;
    const over = new AbortController();
    const question = {
      timeoutS: WATCH_S,
      query: { labelSelector, resourceVersion },
      signal: AbortSignal.any([over.signal, signal]),
    };
    await collection
      .watch(question, (line) => {
        if (!over.signal.aborted && !this.#apply(line)) over.abort();
      })
      .catch((error: unknown) => {
        if (!(error instanceof KubeFailure)) throw error;
      });
  }

  /** Returns false if the objects have to be listed again. */
  #apply(line: string): boolean {
    const { data: event } = WatchEvent.safeParse(jsonOf(line));
    const object = this.#options.schema.safeParse(event?.object).data;
    if (event === undefined || object === undefined) return false;
    const { name } = object.metadata;
    if (event.type === "DELETED") this.#objects.delete(name);
    else if (event.type === "ADDED" || event.type === "MODIFIED") this.#objects.set(name, object);
    else return false; // among others ERROR, when the version is too old
    this.#options.onObjects([...this.#objects.values()]);
    return this.#objects.size <= MAX_OBJECTS;
  }

  #parsed(item: unknown): T {
    const parsed = this.#options.schema.safeParse(item, { error: schemaMessage });
    if (parsed.success) return parsed.data;
    throw this.#options.collection.unexpected("an object of its list", firstIssue(parsed.error));
  }
}
