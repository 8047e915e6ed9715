import * as z from "zod";
import { jsonOf } from "../basics/text.ts";
import { failureOf, type HttpsAnswer, HttpsClient, type HttpsRequest } from "../http/https-client.ts";
import { printable } from "../outcomes.ts";
import { type ApiAccess, checkAccess, type ReadAccess } from "./access.ts";

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

/** What is asked of a collection. The name of the object is needed, but for list and watch. */
export interface KubeQuestion {
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
    try {
      checkAccess(access);
    } catch (error) {
      throw new KubeFailure((error as Error).message, { cause: error });
    }
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
    const { server, tls, token } = this.#read();
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

  #read(): ApiAccess {
    try {
      return this.#access();
    } catch (error) {
      throw new KubeFailure((error as Error).message, { cause: error });
    }
  }

  #hostShown(): string {
    return this.#read().server.host;
  }
}

/** A new object has its name in the body. */
function urlPart(verb: KubeVerb, name: string | undefined): string {
  return name === undefined || verb === "create" ? "" : `/${name}`;
}
