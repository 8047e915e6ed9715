import { Agent, type RequestOptions, request } from "node:https";
import { identityWords } from "../../shared/tls/certificate-names.ts";

/** One request over TLS, with the certificates that it trusts and shows. */
export interface HttpsRequest {
  readonly url: URL;
  readonly method: "GET" | "POST" | "PUT";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tls: Pick<RequestOptions, "ca" | "cert" | "key" | "servername">;
  /** Deadline of the whole request. */
  readonly signal: AbortSignal;
}

export interface HttpsAnswer {
  readonly status: number;
  readonly retryAfterMs: number | undefined;
  readonly text: string;
}

/** Keys and reviews are a few KiB. */
const MAX_ANSWER_BYTES = 1024 * 1024;

/**
 * Sends requests to API servers and issuers of tokens. It is not `fetch`, which takes client certificates and CAs only
 * with the package undici, whose present version needs a newer Node than culvert promises.
 */
export class HttpsClient {
  /** Node reuses a connection only for requests with equal certificates. */
  readonly #agent = new Agent({ keepAlive: true });

  async send(wanted: HttpsRequest): Promise<HttpsAnswer> {
    try {
      return await this.#try(wanted);
    } catch (error) {
      // The server had just closed a kept connection. A second try does no harm.
      if (error instanceof StaleConnection && !wanted.signal.aborted) return await this.#try(wanted);
      throw error;
    }
  }

  #try({ url, method, headers, body, tls, signal }: HttpsRequest): Promise<HttpsAnswer> {
    return new Promise((resolve, reject) => {
      const late = (error: Error): Error => (signal.aborted ? new Error("it took too long to answer") : error);
      const sent = request(url, { ...tls, method, headers, agent: this.#agent, signal, rejectUnauthorized: true });
      sent.on("error", (error: NodeJS.ErrnoException) => {
        reject(late(sent.reusedSocket && error.code === "ECONNRESET" ? new StaleConnection(error.message) : error));
      });
      sent.on("response", (response) => {
        const chunks: Buffer[] = [];
        let length = 0;
        response.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          length += chunk.length;
          if (length > MAX_ANSWER_BYTES) sent.destroy(new Error("its answer is too long"));
        });
        response.on("error", (error) => reject(late(error)));
        response.on("end", () => {
          const text = Buffer.concat(chunks).toString("utf8");
          resolve({ status: response.statusCode ?? 0, retryAfterMs: waitOf(response.headers["retry-after"]), text });
        });
      });
      sent.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

class StaleConnection extends Error {}

/** RFC 9110 §10.2.3 in seconds, as API servers send it. */
function waitOf(retryAfter: string | undefined): number | undefined {
  return retryAfter !== undefined && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1_000 : undefined;
}

/** The reason of a failed request, for a sentence. Failures at several addresses are one error without a message. */
export function failureOf(error: unknown): string {
  if (error instanceof AggregateError) return [...new Set(error.errors.map(failureOf))].join("; ");
  return error instanceof Error ? identityWords(error) : String(error);
}
