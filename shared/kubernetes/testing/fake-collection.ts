import type { ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { folderOf } from "../../documents/testing/files.ts";
import { kubeconfig, type ReadAccess } from "../access.ts";
import type { KubeResource, KubeVerb } from "../kube-collection.ts";
import { type Answer, type Asked, HttpsStub } from "./https-stub.ts";

interface FakeObject {
  readonly metadata: {
    readonly name: string;
    readonly resourceVersion?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** An API server with the objects of one kind in the namespace `ns`: verbs, versions, label selectors and watches. */
export class FakeCollection {
  readonly stub: HttpsStub;
  /** Path of a kubeconfig for it. */
  readonly path: string;
  readonly objects = new Map<string, FakeObject>();
  /** Verbs that the account has no right to. */
  readonly forbidden = new Set<KubeVerb>();
  /** Every request, such as `list` and `update x`. */
  readonly asked: string[] = [];
  readonly #collection: string;
  readonly #watches = new Map<ServerResponse, string>();
  #version = 0;

  private constructor(stub: HttpsStub, path: string, { group, plural }: KubeResource) {
    this.stub = stub;
    this.path = path;
    this.#collection = `${group === "" ? "/api" : `/apis/${group}`}/v1/namespaces/ns/${plural}`;
    stub.answer = (asked) => this.#answer(asked);
  }

  static async start(t: TestContext, resource: KubeResource): Promise<FakeCollection> {
    const stub = await HttpsStub.start(t);
    return new FakeCollection(stub, await stub.kubeconfig(folderOf(t)), resource);
  }

  get access(): ReadAccess {
    return kubeconfig(this.path);
  }

  get watching(): number {
    return this.#watches.size;
  }

  /** Stores it, whatever is there. */
  put(object: FakeObject): FakeObject {
    const { name } = object.metadata;
    const type = this.objects.has(name) ? "MODIFIED" : "ADDED";
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(++this.#version) } };
    this.objects.set(name, stored);
    this.#tell(type, stored);
    return stored;
  }

  delete(name: string): void {
    const object = this.objects.get(name);
    this.objects.delete(name);
    this.#version++;
    if (object !== undefined) this.#tell("DELETED", object);
  }

  /** Sends one line to each watch. */
  say(line: string): void {
    for (const response of this.#watches.keys()) response.write(`${line}\n`);
  }

  endWatches(): void {
    for (const response of this.#watches.keys()) response.end();
  }

  #tell(type: string, object: FakeObject): void {
    for (const [response, selector] of this.#watches) {
      if (selects(selector, object)) response.write(`${JSON.stringify({ type, object })}\n`);
    }
  }

  #answer({ method, path, body }: Asked): Answer {
    const url = new URL(path, "https://api");
    const name = url.pathname.slice(this.#collection.length + 1);
    if (!url.pathname.startsWith(this.#collection)) return failure(404, "the server could not find it");
    const verb = verbOf(method, name, url.searchParams);
    const sent = body === "" ? undefined : JSON.parse(body);
    this.asked.push([verb, name || (sent?.metadata?.name ?? "")].join(" ").trim());
    if (this.forbidden.has(verb)) return failure(403, `User "u" cannot ${verb}`);
    const selector = url.searchParams.get("labelSelector") ?? "";
    if (verb === "watch") return this.#watch(selector);
    if (verb === "list") {
      const items = [...this.objects.values()].filter((object) => selects(selector, object));
      return { status: 200, body: { metadata: { resourceVersion: String(this.#version) }, items } };
    }
    return this.#change(verb, name || sent.metadata.name, sent);
  }

  #change(verb: KubeVerb, name: string, sent: FakeObject & { readonly preconditions?: { resourceVersion: string } }) {
    const present = this.objects.get(name);
    if (verb === "create") {
      return present ? failure(409, "it exists") : { status: 201, body: this.put(sent) };
    }
    if (present === undefined) return failure(404, `"${name}" not found`);
    if (verb === "get") return { status: 200, body: present };
    const version = verb === "delete" ? sent?.preconditions?.resourceVersion : sent.metadata.resourceVersion;
    if (version !== undefined && version !== present.metadata.resourceVersion) return failure(409, "it was modified");
    if (verb === "update") return { status: 200, body: this.put(sent) };
    this.delete(name);
    return { status: 200, body: { kind: "Status", status: "Success" } };
  }

  #watch(selector: string): Answer {
    const stream = (response: ServerResponse): void => {
      response.flushHeaders();
      this.#watches.set(response, selector);
      response.on("close", () => this.#watches.delete(response));
    };
    return { status: 200, body: "", stream };
  }
}

function verbOf(method: string, name: string, query: URLSearchParams): KubeVerb {
  if (method === "GET" && name === "") return query.get("watch") === "1" ? "watch" : "list";
  return ({ GET: "get", POST: "create", PUT: "update", DELETE: "delete" } as const)[method] ?? "get";
}

function selects(selector: string, { metadata: { labels = {} } }: FakeObject): boolean {
  return selector.split(",").every((part) => {
    const [key = "", value] = part.split("=");
    return part === "" || labels[key] === value;
  });
}

function failure(status: number, message: string): Answer {
  return { status, body: { kind: "Status", apiVersion: "v1", status: "Failure", message, code: status } };
}
