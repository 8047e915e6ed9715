import type { TestContext } from "node:test";
import { folderOf } from "../../../shared/documents/testing/files.ts";
import { kubeconfig, type ReadAccess } from "../../../shared/kubernetes/access.ts";
import { type Answer, type Asked, HttpsStub } from "../../../shared/kubernetes/testing/https-stub.ts";

interface StoredSecret {
  readonly type?: string;
  readonly metadata: {
    readonly name: string;
    readonly resourceVersion?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly data: Readonly<Record<string, string>>;
}

const FORBIDDEN = 'secrets "x" is forbidden: User "system:serviceaccount:ns:pki" cannot do that';

/** The part of an API server that keeps Secrets of the namespace `ns`, with its optimistic locking. */
export class KubeSecretsStub {
  readonly secrets = new Map<string, StoredSecret>();
  /** `POST name` and `PUT name`, in the order in which they succeeded. */
  readonly writes: string[] = [];
  readonly path: string;
  /** Verbs that the account has no right to: `get`, `create`, `update`. */
  readonly forbidden = new Set<string>();
  /** Called before a write is looked at: somebody else may be faster. */
  beforeWrite: (method: string, name: string) => void = () => {};
  readonly stub: HttpsStub;
  #version = 0;

  private constructor(stub: HttpsStub, path: string) {
    this.stub = stub;
    this.path = path;
    stub.answer = (asked) => this.#answer(asked);
  }

  static async start(t: TestContext): Promise<KubeSecretsStub> {
    const stub = await HttpsStub.start(t);
    return new KubeSecretsStub(stub, await stub.kubeconfig(folderOf(t)));
  }

  get access(): ReadAccess {
    return kubeconfig(this.path);
  }

  /** The text of a key of a Secret. */
  text(name: string, key: string): string {
    return Buffer.from(this.secrets.get(name)?.data[key] ?? "", "base64").toString();
  }

  /** Stores it, whatever is there. */
  put(secret: StoredSecret): void {
    const { name } = secret.metadata;
    this.secrets.set(name, { ...secret, metadata: { ...secret.metadata, resourceVersion: String(++this.#version) } });
  }

  #answer({ method, path, body }: Asked): Answer {
    const [, namespace, named] = /^\/api\/v1\/namespaces\/([^/]+)\/secrets(?:\/([^/]+))?$/.exec(path) ?? [];
    if (namespace !== "ns") return failure(404, `namespaces "${namespace}" not found`);
    if (method === "GET") return this.#read(named ?? "");
    const secret = JSON.parse(body) as StoredSecret;
    const { name, resourceVersion } = secret.metadata;
    if (this.forbidden.has(method === "POST" ? "create" : "update")) return failure(403, FORBIDDEN);
    this.beforeWrite(method, name);
    const present = this.secrets.get(name);
    if (method === "POST" && present !== undefined) return failure(409, `secrets "${name}" already exists`);
    if (method === "PUT" && present === undefined) return failure(404, `secrets "${name}" not found`);
    if (method === "PUT" && present?.metadata.resourceVersion !== resourceVersion) {
      return failure(409, "the object has been modified");
    }
    this.put(secret);
    this.writes.push(`${method} ${name}`);
    return { status: method === "POST" ? 201 : 200, body: this.secrets.get(name) };
  }

  #read(name: string): Answer {
    if (this.forbidden.has("get")) return failure(403, FORBIDDEN);
    const secret = this.secrets.get(name);
    return secret === undefined ? failure(404, `secrets "${name}" not found`) : { status: 200, body: secret };
  }
}

function failure(status: number, message: string): Answer {
  return { status, body: { kind: "Status", apiVersion: "v1", status: "Failure", message, code: status } };
}
