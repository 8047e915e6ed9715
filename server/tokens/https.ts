import { Agent, type RequestOptions, request } from "node:https";
import { identityWords } from "../../shared/tls/identity-words.ts";

/** One request over TLS, and what is believed on the way. */
export interface HttpsRequest {
  readonly url: URL;
  readonly method: "GET" | "POST" | "PUT";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tls: Pick<RequestOptions, "ca" | "cert" | "key" | "servername">;
  /** The deadline for the whole of it. */
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
 * Requests to the API server or the issuer of tokens. `fetch` would not do: client certificates and a CA of one's own
 * need undici as a package, whose present version asks for a newer Node than we promise.
 */
export class HttpsClient {
  /** Connections are kept for requests with the very same certificates (Node compares them), never for others. */
  readonly #agent = new Agent({ keepAlive: true });

  async send(wanted: HttpsRequest): Promise<HttpsAnswer> {
    try {
      return await this.#try(wanted);
    } catch (error) {
      // A kept connection that the server had closed just then: asking twice does no harm here.
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

/** Node's words for a failed request, for a sentence: several addresses fail with one error that has none of its own. */
export function failureOf(error: unknown): string {
  if (error instanceof AggregateError) return [...new Set(error.errors.map(failureOf))].join("; ");
  return error instanceof Error ? identityWords(error) : String(error);
}
