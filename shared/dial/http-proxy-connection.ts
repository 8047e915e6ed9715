import { once } from "node:events";
import type { Socket } from "node:net";
import tls from "node:tls";
import { sniOf } from "../address/server-name.ts";
import { peerAction } from "../http/connection.ts";
import { trustIn, wellKnownAuthorities } from "../tls/authorities.ts";
import { identityWords, isUntrusted } from "../tls/server-certificate.ts";
import { AnswerBody, type AnswerHead, AnswerReader, keepsConnection } from "./connect-answer.ts";
import { formatProxy, type ProxyServer, RouteFault } from "./proxy-route.ts";
import { readUntil } from "./read-until.ts";

/** The connection has ended without an answer. */
interface Unanswered {
  readonly head: undefined;
  /** No byte was received, so the proxy may have closed the connection before it saw the request. */
  readonly isEmpty: boolean;
  /** The error of the socket, if there was one. */
  readonly error: Error | undefined;
}

/** Time for the body of a refusal, of which only the status counts. */
const BODY_MS = 1_000;
/** For a message, and to keep the connection: skipping a larger body costs more than a new connection. */
const MAX_BODY_BYTES = { shown: 1_024, skipped: 64 * 1024 };

/** A connection to a proxy, for one request after another. It does not consume bytes of the tunnel. */
export class ProxyConnection {
  /** As the tunnel it is paused, with the bytes after the answer. */
  readonly socket: Socket;
  #requests = 0;

  /** The socket has an error listener. */
  constructor(socket: Socket) {
    this.socket = socket;
  }

  /** Has this connection served an earlier request? The proxy may have closed it since. */
  get isReused(): boolean {
    return this.#requests > 1;
  }

  /** Sends a request. Rejects with `UnreadableAnswer`. */
  async request(header: string): Promise<{ readonly head: AnswerHead } | Unanswered> {
    this.#requests++;
    const reader = new AnswerReader();
    // One byte for each character: the parameters that are sent back were decoded in this way.
    this.socket.write(header, "latin1");
    const { found, error } = await readUntil(this.socket, (chunk) => {
      const answer = reader.push(chunk);
      return answer === undefined ? undefined : { found: answer.head, rest: answer.rest };
    });
    return found === undefined ? { head: undefined, isEmpty: reader.isEmpty, error } : { head: found };
  }

  /** The beginning of the body. Afterwards the connection cannot be used for another request. */
  async readPage(head: AnswerHead): Promise<string> {
    const body = new AnswerBody(head, MAX_BODY_BYTES.shown);
    await this.#read(body);
    return body.text;
  }

  /** Makes the connection ready for another request. Gives `false` if that is not possible. */
  async skipBody(head: AnswerHead): Promise<boolean> {
    const body = new AnswerBody(head, MAX_BODY_BYTES.skipped);
    if (!keepsConnection(head) || body.endsWithConnection) return false;
    await this.#read(body);
    // Bytes after the body cannot answer a request that was not sent yet.
    return body.isComplete && this.socket.readableLength === 0 && !this.socket.destroyed;
  }

  async #read(body: AnswerBody): Promise<void> {
    if (body.isOver) return;
    const timer = setTimeout(() => this.socket.destroy(), BODY_MS);
    await readUntil(this.socket, (chunk) => {
      const rest = body.push(chunk);
      return rest === undefined ? undefined : { found: true, rest };
    });
    clearTimeout(timer);
  }
}

/** Settings for TLS to the proxy itself. */
export interface ProxyTls {
  /** PEM, in addition to the well-known CAs. */
  readonly ca?: readonly string[] | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** Starts TLS to an `https://` proxy on an open connection, which stays the caller's. Rejects with a `RouteFault`. */
export async function secureProxy(
  raw: Socket,
  proxy: ProxyServer,
  { ca, cert, key }: ProxyTls,
  signal: AbortSignal,
): Promise<tls.TLSSocket> {
  try {
    const socket = tls.connect({
      socket: raw,
      host: proxy.host,
      ...sniOf(proxy.host),
      ...trustIn(ca && [...wellKnownAuthorities(), ...ca]),
      cert,
      key,
      // NODE_TLS_REJECT_UNAUTHORIZED=0 must not apply: passwords are sent on this connection.
      rejectUnauthorized: true,
      ALPNProtocols: ["http/1.1"],
    });
    socket.on("error", ignore);
    await once(socket, "secureConnect", { signal });
    return socket;
  } catch (error) {
    throw tlsFault(proxy, error as Error); // also of OpenSSL, if it cannot read the files
  }
}

/** TLS to the proxy has failed in the handshake or, in TLS 1.3 (RFC 8446 §4.4.2.4), after it. */
export function tlsFault(proxy: ProxyServer, error: NodeJS.ErrnoException): RouteFault {
  const at = formatProxy(proxy);
  return new RouteFault("proxy_tls", `TLS to the proxy ${at} failed: ${explain(error)}`, { at, cause: error });
}

/** Is this an error of TLS, and not of the network below? */
export function isTlsError(error: NodeJS.ErrnoException | undefined): error is NodeJS.ErrnoException {
  return error?.code?.startsWith("ERR_SSL_") ?? false;
}

function explain(error: NodeJS.ErrnoException): string {
  const { code = "", message } = error;
  if (isUntrusted(error)) {
    return `its certificate comes from a CA that is not known here: give that CA with --proxy-ca (${code})`;
  }
  if (code === "CERT_HAS_EXPIRED" || code === "CERT_NOT_YET_VALID") {
    return `its certificate is not valid now: check this machine's clock, and the proxy's certificate (${message})`;
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `its certificate is for another name: call the proxy by a name that is in it (${identityWords(error)})`;
  }
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER" || code === "ERR_SSL_PACKET_LENGTH_TOO_LONG") {
    return "it does not speak TLS: is it an http:// proxy?";
  }
  if (/CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE|BAD_CERTIFICATE|UNKNOWN_CA|CERTIFICATE_UNKNOWN/.test(code)) {
    return `it refuses our certificate, or wants one: see --proxy-cert and --proxy-key (${code})`;
  }
  const action = peerAction(error);
  const what = action === undefined ? message : `it ${action} in the handshake`;
  return `check that it is an https:// proxy, and --proxy-ca, --proxy-cert and --proxy-key (${what})`;
}

function ignore(): void {}
