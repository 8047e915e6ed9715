import * as z from "zod";
import { firstIssue, jsonOf, schemaMessage } from "../../shared/basics/text.ts";
import type { ReadAccess } from "../../shared/kubernetes/access.ts";
import { KubeCollection, KubeFailure } from "../../shared/kubernetes/kube-collection.ts";

const SecretObject = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()).optional() }),
  data: z.record(z.string(), z.string()).optional(),
});

/** A Secret as the API server stores it. Fields that we do not know are sent back unchanged. */
export type Secret = z.infer<typeof SecretObject>;

const SECRETS = { group: "", plural: "secrets", singular: "secret" };

/** The Secrets of one namespace. All methods throw a `KubeFailure`. */
export class KubeSecrets {
  readonly #namespace: string;
  readonly #deadline: AbortSignal;
  readonly #collection: KubeCollection;

  /** `deadline` ends every request. */
  constructor(access: ReadAccess, namespace: string, deadline: AbortSignal) {
    this.#collection = new KubeCollection(access, SECRETS, namespace);
    this.#namespace = namespace;
    this.#deadline = deadline;
  }

  async read(name: string): Promise<Secret | undefined> {
    const answer = await this.#collection.ask("get", { name, signal: this.#deadline });
    if (answer.status === 404) return undefined;
    this.#collection.requireSuccess(answer, "get", name);
    const parsed = SecretObject.safeParse(jsonOf(answer.text), { error: schemaMessage });
    if (parsed.success) return parsed.data;
    throw this.#collection.unexpected(`a Secret for ${name}`, firstIssue(parsed.error));
  }

  /** Returns false if a Secret of this name exists by now. */
  async create(name: string, secret: object): Promise<boolean> {
    const answer = await this.#collection.ask("create", { name, body: secret, signal: this.#deadline });
    if (answer.status === 409) return false;
    if (answer.status === 404) throw new KubeFailure(`there is no namespace "${this.#namespace}": create it first`);
    this.#collection.requireSuccess(answer, "create", name);
    return true;
  }

  /** Returns false if the Secret has been changed or deleted since it was read. */
  async replace(name: string, secret: Secret): Promise<boolean> {
    const answer = await this.#collection.ask("update", { name, body: secret, signal: this.#deadline });
    if (answer.status === 409 || answer.status === 404) return false;
    this.#collection.requireSuccess(answer, "update", name);
    return true;
  }

  close(): void {
    this.#collection.close();
  }
}
