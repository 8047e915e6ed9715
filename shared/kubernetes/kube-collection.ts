import { setTimeout as sleep } from "node:timers/promises";
import * as z from "zod";
import { firstIssue, jsonOf, schemaMessage } from "../basics/text.ts";
import { failureOf, type HttpsAnswer, HttpsClient, type HttpsRequest } from "../http/https-client.ts";
import { printable } from "../outcomes.ts";
import { checkAccess, type ReadAccess } from "./access.ts";

/** Why the API server could not be reached, or refused, as a sentence for users. */
export class KubeFailure extends Error {
  override readonly name = "KubeFailure";
}

/** A kind of object, as URLs and rules of RBAC name it. */
export interface KubeResource {
  /** API group, version v1; empty: the core group. */
  readonly group: string;
  readonly plural: string;
  readonly singular: string;
}

/** Deadline for one request, ms. The API server's own limit for most requests is a minute. */
const REQUEST_TIMEOUT_MS = 10_000;
/** An API server ends a watch at its `timeoutSeconds`. This is what a dead connection gets beyond that, ms. */
const WATCH_MARGIN_MS = 5_000;

const METHODS = { get: "GET", list: "GET", watch: "GET", create: "POST", update: "PUT", delete: "DELETE" } as const;
export type KubeVerb = keyof typeof METHODS;

/** A request to a collection. Every request but list and watch needs the name of the object. */
interface KubeQuestion {
  readonly name?: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
  readonly signal: AbortSignal;
}

const StatusObject = z.object({ message: z.string() });

/** The objects of one kind in one namespace. All methods throw a `KubeFailure`. */
export class KubeCollection {
  readonly #access: ReadAccess;
  readonly #resource: KubeResource;
  readonly #namespace: string;
  readonly #client = new HttpsClient();

  constructor(access: ReadAccess, resource: KubeResource, namespace: string) {
    withSentence(() => checkAccess(access));
    this.#access = access;
    this.#resource = resource;
    this.#namespace = namespace;
  }

  /** Returns the answer, whatever its status is. */
  async ask(verb: Exclude<KubeVerb, "watch">, question: KubeQuestion): Promise<HttpsAnswer> {
    const signal = AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), question.signal]);
    return await this.#send(verb, { ...question, signal }, (request) => this.#client.send(request));
  }

  /** Passes on the lines of a watch, which are one JSON object each. Resolves when the API server ends it. */
  async watch(
    { timeoutS, query, signal }: Omit<KubeQuestion, "name" | "body"> & { readonly timeoutS: number },
    onLine: (line: string) => void,
  ): Promise<void> {
    const late = AbortSignal.timeout(timeoutS * 1_000 + WATCH_MARGIN_MS);
    const question = {
      query: { ...query, watch: "1", timeoutSeconds: String(timeoutS) },
      signal: AbortSignal.any([late, signal]),
    };
    const answer = await this.#send("watch", question, (request) => this.#client.readLines(request, onLine));
    this.requireSuccess(answer, "watch");
  }

  /** Throws what is to be done about an answer that is no success. */
  requireSuccess({ status, text }: HttpsAnswer, verb: KubeVerb, name?: string): void {
    if (status >= 200 && status < 300) return;
    const { group, plural, singular } = this.#resource;
    const what = name === undefined ? plural : `the ${singular} ${name}`;
    const reason = StatusObject.safeParse(jsonOf(text)).data?.message;
    const said = reason === undefined ? "" : `. It says: ${printable(reason, 300)}`;
    const where = `the API server ${this.#hostShown()}`;
    if (status === 401) throw new KubeFailure(`${where} does not accept our credentials (401)${said}`);
    if (status === 403) {
      const kind = group === "" ? `"${plural}"` : `"${plural}" (${group})`;
      const cure = `grant the verb "${verb}" on ${kind} in namespace "${this.#namespace}" by a Role`;
      throw new KubeFailure(`${where} does not let us ${verb} ${what}: ${cure}${said}`);
    }
    throw new KubeFailure(`${where} answers ${status} to ${verb} of ${what}${said}`);
  }

  /** The failure of an answer that is not what was asked for. */
  unexpected(what: string, problem: string): KubeFailure {
    return new KubeFailure(`the API server ${this.#hostShown()} answers with something else than ${what}: ${problem}`);
  }

  close(): void {
    this.#client.close();
  }

  async #send(
    verb: KubeVerb,
    { name, query, body, signal }: KubeQuestion,
    send: (request: HttpsRequest) => Promise<HttpsAnswer>,
  ): Promise<HttpsAnswer> {
    const { server, tls, token } = withSentence(this.#access);
    const url = new URL(`${server.href.replace(/\/$/, "")}${this.#path()}${urlPart(verb, name)}`);
    for (const [key, value] of Object.entries(query ?? {})) url.searchParams.set(key, value);
    try {
      return await send({
        url,
        method: METHODS[verb],
        headers: {
          accept: "application/json",
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        tls,
        signal,
      });
    } catch (error) {
      throw new KubeFailure(`the API server ${server.host} cannot be reached: ${failureOf(error)}`, { cause: error });
    }
  }

  #path(): string {
    const { group, plural } = this.#resource;
    return `${group === "" ? "/api" : `/apis/${group}`}/v1/namespaces/${this.#namespace}/${plural}`;
  }

  #hostShown(): string {
    return withSentence(this.#access).server.host;
  }
}

/** Throws the sentence that `ReadAccess` throws as a `KubeFailure`. */
function withSentence<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new KubeFailure((error as Error).message, { cause: error });
  }
}

/** A new object has its name in the body. */
function urlPart(verb: KubeVerb, name: string | undefined): string {
  return name === undefined || verb === "create" ? "" : `/${name}`;
}

/** The fields that are read of every object. */
export interface KubeObject {
  readonly metadata: { readonly name: string };
}

interface ObjectWatchOptions<T extends KubeObject> {
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
