import { z } from "zod";
import { failureOf, type HttpsAnswer, HttpsClient } from "../../server/tokens/https-client.ts";
import { type ApiAccess, checkAccess, type ReadAccess } from "../../server/tokens/kube-access.ts";
import { firstIssue, schemaMessage } from "../../shared/basics/schema-errors.ts";
import { printable } from "../../shared/outcomes.ts";

const SecretObject = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()).optional() }),
  data: z.record(z.string(), z.string()).optional(),
});

/** A Secret as the API server stores it. Fields that we do not know are sent back unchanged. */
export type Secret = z.infer<typeof SecretObject>;

/** Why the API server could not be reached, or refused, as a sentence for users. */
export class KubeFailure extends Error {
  override readonly name = "KubeFailure";
}

/** Deadline for one request, ms. The API server's own limit for most requests is a minute. */
const REQUEST_TIMEOUT_MS = 10_000;
const VERBS = { GET: "get", POST: "create", PUT: "update" } as const;
const StatusObject = z.object({ message: z.string() });

/** The Secrets of one namespace. All methods throw a `KubeFailure`. */
export class KubeSecrets {
  readonly #access: ApiAccess;
  readonly #namespace: string;
  readonly #deadline: AbortSignal;
  readonly #client = new HttpsClient();

  /** `deadline` ends every request. */
  constructor(access: ReadAccess, namespace: string, deadline: AbortSignal) {
    try {
      checkAccess(access);
      this.#access = access();
    } catch (error) {
      throw new KubeFailure((error as Error).message, { cause: error });
    }
    this.#namespace = namespace;
    this.#deadline = deadline;
  }

  async read(name: string): Promise<Secret | undefined> {
    const answer = await this.#ask("GET", name);
    if (answer.status === 404) return undefined;
    this.#expectSuccess(answer, "GET", name);
    const parsed = SecretObject.safeParse(jsonOf(answer.text), { error: schemaMessage });
    if (parsed.success) return parsed.data;
    throw new KubeFailure(
      `${this.#host} answers with something else than a Secret for ${name}: ${firstIssue(parsed.error)}`,
    );
  }

  /** Returns false if a Secret of this name exists by now. */
  async create(name: string, secret: object): Promise<boolean> {
    const answer = await this.#ask("POST", name, secret);
    if (answer.status === 409) return false;
    if (answer.status === 404) throw new KubeFailure(`there is no namespace "${this.#namespace}": create it first`);
    this.#expectSuccess(answer, "POST", name);
    return true;
  }

  /** Returns false if the Secret has been changed or deleted since it was read. */
  async replace(name: string, secret: Secret): Promise<boolean> {
    const answer = await this.#ask("PUT", name, secret);
    if (answer.status === 409 || answer.status === 404) return false;
    this.#expectSuccess(answer, "PUT", name);
    return true;
  }

  close(): void {
    this.#client.close();
  }

  get #host(): string {
    return `the API server ${this.#access.server.host}`;
  }

  async #ask(method: keyof typeof VERBS, name: string, body?: object): Promise<HttpsAnswer> {
    const { server, tls, token } = this.#access;
    const collection = `${server.href.replace(/\/$/, "")}/api/v1/namespaces/${this.#namespace}/secrets`;
    try {
      return await this.#client.send({
        url: new URL(method === "POST" ? collection : `${collection}/${name}`),
        method,
        headers: {
          accept: "application/json",
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        tls,
        signal: AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), this.#deadline]),
      });
    } catch (error) {
      throw new KubeFailure(`${this.#host} cannot be reached: ${failureOf(error)}`, { cause: error });
    }
  }

  #expectSuccess({ status, text }: HttpsAnswer, method: keyof typeof VERBS, name: string): void {
    if (status >= 200 && status < 300) return;
    const verb = VERBS[method];
    const reason = StatusObject.safeParse(jsonOf(text)).data?.message;
    const said = reason === undefined ? "" : `. It says: ${printable(reason, 300)}`;
    if (status === 401) throw new KubeFailure(`${this.#host} does not accept our credentials (401)${said}`);
    if (status === 403) {
      const cure = `grant the verb "${verb}" on "secrets" in namespace "${this.#namespace}" by a Role`;
      throw new KubeFailure(`${this.#host} does not let us ${verb} the secret ${name}: ${cure}${said}`);
    }
    throw new KubeFailure(`${this.#host} answers ${status} to ${verb} of the secret ${name}${said}`);
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
