import type { IncomingMessage } from "node:http";
import { Agent, type RequestOptions, request } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ConnectAborted, connectTcp } from "../net/connect-tcp.ts";
import { trustIn } from "../tls/authorities.ts";
import { CLIENT_KEY_EXCHANGE } from "../tls/key-exchange.ts";
import { identityWords } from "../tls/server-certificate.ts";

/** One request over TLS, with the certificates that it trusts and shows. */
export interface HttpsRequest {
  readonly url: URL;
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly tls: Pick<RequestOptions, "cert" | "key" | "servername"> & { readonly ca?: string | undefined };
  /** Deadline of the whole request. */
  readonly signal: AbortSignal;
}

export interface HttpsAnswer {
  readonly status: number;
  readonly retryAfterMs: number | undefined;
  readonly text: string;
}

/** Keys and reviews are a few KiB. It is also the bound for one line of an answer that is read by lines. */
const MAX_ANSWER_BYTES = 1024 * 1024;
/** Idle time after which the kernel asks whether a peer is still there, ms. */
const KEEP_ALIVE_MS = 1_000;

/**
 * Sends requests to API servers and issuers of tokens. It is not `fetch`, which takes client certificates and CAs only
 * with the package undici, whose present version needs a newer Node than culvert promises.
 */
export class HttpsClient {
  /** Node reuses a connection only for requests with equal certificates. Sessions would be resumed unverified. */
  readonly #agent = new ConnectingAgent({ keepAlive: true, maxCachedSessions: 0, ...CLIENT_KEY_EXCHANGE });

  async send(wanted: HttpsRequest): Promise<HttpsAnswer> {
    try {
      return await this.#try(wanted, collect);
    } catch (error) {
      // The server had just closed a kept connection. A second try does no harm.
      if (error instanceof StaleConnection && !wanted.signal.aborted) return await this.#try(wanted, collect);
      throw error;
    }
  }

  /**
   * Passes on the lines of an answer with status 200 while they arrive, and resolves at its end with an empty text. Any
   * other answer is returned as by `send`.
   */
  async readLines(wanted: HttpsRequest, onLine: (line: string) => void): Promise<HttpsAnswer> {
    return await this.#try(wanted, (response, fail) => {
      return response.statusCode === 200 ? splitLines(response, fail, onLine) : collect(response, fail);
    });
  }

  #try({ url, method, headers, body, tls, signal }: HttpsRequest, read: ReadBody): Promise<HttpsAnswer> {
    return new Promise((resolve, reject) => {
      const late = (error: Error): Error =>
        signal.aborted && !(error instanceof ConnectAborted) ? new Error("it took too long to answer") : error;
      const trust = trustIn(tls.ca);
      const options: ConnectingOptions = {
        ...tls,
        ...trust,
        rejectUnauthorized: true,
        method,
        headers,
        agent: this.#agent,
        signal,
        dialSignal: signal,
      };
      const sent = request(url, options);
      sent.on("error", (error: NodeJS.ErrnoException) => {
        reject(late(sent.reusedSocket && error.code === "ECONNRESET" ? new StaleConnection(error.message) : error));
      });
      sent.on("response", (response) => {
        const textOf = read(response, (error) => sent.destroy(error));
        response.on("error", (error) => reject(late(error)));
        response.on("end", () => {
          const { statusCode: status = 0, headers } = response;
          resolve({ status, retryAfterMs: waitOf(headers["retry-after"]), text: textOf() });
        });
      });
      sent.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** `dialSignal`: Node keeps `signal` from agents. */
type ConnectingOptions = RequestOptions & { readonly dialSignal: AbortSignal };

/** Node's own dial would give up each of several addresses after 250 ms. */
class ConnectingAgent extends Agent {
  override createConnection(options: RequestOptions, done: Connected): undefined {
    void this.#connect(options as ConnectingOptions, done);
  }

  async #connect(options: ConnectingOptions, done: Connected): Promise<void> {
    const { host, port, dialSignal } = options;
    let socket: Socket | undefined;
    try {
      socket = await connectTcp({ host: host ?? "", port: Number(port) }, dialSignal);
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      const over: RequestOptions & { socket: Socket } = { ...options, socket };
      done(null, super.createConnection(over) as Duplex);
    } catch (error) {
      socket?.destroy();
      (done as (error: unknown) => void)(error);
    }
  }
}

type Connected = (error: Error | null, socket: Duplex) => void;

class StaleConnection extends Error {}

/** Reads a body; `fail` ends the request. The function returned gives the text at the end. */
type ReadBody = (response: IncomingMessage, fail: (error: Error) => void) => () => string;

const collect: ReadBody = (response, fail) => {
  const chunks: Buffer[] = [];
  let length = 0;
  response.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    length += chunk.length;
    if (length > MAX_ANSWER_BYTES) fail(new Error("its answer is too long"));
  });
  return () => Buffer.concat(chunks).toString("utf8");
};

function splitLines(
  response: IncomingMessage,
  fail: (error: Error) => void,
  onLine: (line: string) => void,
): () => string {
  let rest = "";
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_ANSWER_BYTES) fail(new Error("a line of its answer is too long"));
    for (const line of lines) onLine(line);
  });
  return () => "";
}

/** RFC 9110 §10.2.3 in seconds, as API servers send it. */
function waitOf(retryAfter: string | undefined): number | undefined {
  return retryAfter !== undefined && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1_000 : undefined;
}

/** The reason of a failed request, for a sentence. */
export function failureOf(error: unknown): string {
  return error instanceof Error ? identityWords(error) : String(error);
}
