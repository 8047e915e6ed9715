import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type Duplex, duplexPair } from "node:stream";
import { unwatchForEnd, watchForEnd } from "../../shared/http/connection.ts";
import { forward, type WholeUrl } from "../../shared/http/forward.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { challenges } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";
import { refusalOf, refuseConnect } from "./reply.ts";

/**
 * The caller of a request for a whole `http://` URL, which has a connection for itself. Its header is read once more,
 * together with the body, when the target is connected: until then nobody is authenticated, and the body stays unread.
 *
 * ```
 *  the caller's socket ◀─▶ node:http ─▶ forward ─▶ a pair of Duplex ◀─ splice ─▶ the stream to the agent
 * ```
 */
export class WholeUrlCaller implements CallerEnd {
  readonly stream: Duplex;
  readonly connection: IncomingConnection;
  readonly idleBytes = CONNECTION_BYTES.tls;
  readonly gapMs = 0;
  readonly #socket: Duplex;
  readonly #header: string;
  readonly #url: WholeUrl;
  readonly #host: ClusterVirtualHost;
  readonly #maxHeaderSize: number;
  /** The other end of `stream`. */
  readonly #inner: Duplex;

  constructor(
    request: IncomingMessage,
    url: WholeUrl,
    connection: IncomingConnection,
    host: ClusterVirtualHost,
    { options }: ServerContext,
  ) {
    const { socket } = connection;
    [this.stream, this.#inner] = duplexPair();
    this.connection = connection;
    this.#socket = socket;
    this.#header = headerOf(request);
    this.#url = url;
    this.#host = host;
    this.#maxHeaderSize = options.headerLimit;
    this.#inner.on("error", ignore);
    watchForEnd(socket);
    socket.on("close", () => {
      this.stream.destroy();
      this.#inner.destroy();
    });
  }

  establish(onWritten?: () => void): void {
    const server = createServer({ maxHeaderSize: this.#maxHeaderSize });
    server.maxRequestsPerSocket = 1; // a further one gets no answer, since the connection ends with this one's
    let served: IncomingMessage | undefined;
    const onRequest = (asked: IncomingMessage, answer: ServerResponse): void => {
      served = asked;
      this.#forward(asked, answer);
    };
    server.on("request", onRequest).on("checkContinue", onRequest);
    // Bytes behind the request do not cost its answer.
    server.on("clientError", () => served?.complete === true || this.#socket.destroy());
    unwatchForEnd(this.#socket);
    this.#socket.unshift(Buffer.from(this.#header, "latin1"));
    server.emit("connection", this.#socket);
    this.#socket.resume();
    onWritten?.();
  }

  #forward(asked: IncomingMessage, answer: ServerResponse): void {
    answer.shouldKeepAlive = false;
    forward(asked, answer, {
      connection: this.#inner,
      path: this.#url.path,
      authority: this.#url.authority,
      reset: () => this.#inner.destroy(),
      refuse: (sentence) => {
        const refusal = refusalOf(new CulvertError("dial_reset", sentence), []);
        if (refusal === undefined || answer.headersSent || answer.destroyed) return;
        answer.writeHead(refusal.status, printable(sentence), Object.fromEntries(refusal.fields));
        answer.end(`${printable(sentence)}\n`);
      },
    });
  }

  refuse(refusal: CulvertError): void {
    unwatchForEnd(this.#socket);
    refuseConnect(this.#socket, refusal, challenges(this.#host));
  }

  /** `forward` passes the failure on. */
  reset(): void {
    this.#inner.destroy(new Error("the connection to the target was reset"));
    this.stream.destroy();
  }
}

/** The header as it has come. */
function headerOf({ method, url, httpVersion, rawHeaders }: IncomingMessage): string {
  let header = `${method} ${url} HTTP/${httpVersion}\r\n`;
  for (let at = 0; at < rawHeaders.length; at += 2) header += `${rawHeaders[at]}:${rawHeaders[at + 1]}\r\n`;
  return `${header}\r\n`;
}

function ignore(): void {}
