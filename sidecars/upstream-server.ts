import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { formatTarget, type Target } from "../shared/address/target.ts";
import { untilAborted } from "../shared/basics/promises.ts";
import { dialTcp } from "../shared/dial/dial-tcp.ts";
import { Liveness } from "../shared/link/liveness.ts";
import { failOnReset, widenClientSession, writeStringsAsBuffers } from "../shared/node/http2.ts";
import { type ClientTls, tlsOver } from "../shared/tls/tls-over.ts";
import { connectOverHttp1 } from "./http-connect.ts";
import { Refusal, refusalOf, serverAway } from "./refusal.ts";

const { NGHTTP2_CANCEL } = constants;

/** TLS on a connection. */
interface Secured {
  readonly socket: TLSSocket;
  readonly raw: Socket;
}

/** Time for TCP, TLS and the first SETTINGS of a server, ms. Then the next server is asked. */
const CONNECT_MS = 3_000;
/** Bytes that a server may send on one stream before its client has read them. Node holds them in memory. */
const STREAM_WINDOW = 256 * 1024;
/**
 * Bytes that a server may send on all streams together before Node has taken them. Node takes them at once, read or
 * not.
 */
const SESSION_WINDOW = 4 * 1024 * 1024;
/** Node refuses streams beyond this, MiB; `--max-connections` comes first. */
const SESSION_MEMORY = 4_096;
/** Interval of pings, ms. A server from which no byte comes for 2.5 of them is away. */
const PING_MS = 8_000;
/** Time until a server that spoke HTTP/1.1 is asked for HTTP/2 again, ms: it may be a newer one by now. */
const HTTP1_MS = 60_000;
/** Bytes of a refusal's sentence that are kept. */
const MAX_SENTENCE = 1_024;

/**
 * One server, with the HTTP/2 session to it. A session ends by GOAWAY, by a silent or a lost connection, and with the
 * certificate; the next dial opens another one. A server that does not speak HTTP/2 gets a connection for each dial.
 *
 * ```
 *  open ─▶ a session? ─no─▶ TCP ─▶ TLS, ALPN h2 ─▶ SETTINGS ─▶ CONNECT on a stream
 *                                     └── not h2 ─▶ TLS, ALPN http/1.1 ─▶ CONNECT on the connection
 * ```
 */
export class UpstreamServer {
  readonly at: string;
  readonly #address: Target;
  readonly #tls: () => ClientTls;
  readonly #pingMs: number;
  #session: ClientHttp2Session | undefined;
  #connecting: Promise<ClientHttp2Session | undefined> | undefined;
  #http1Until = 0;

  constructor(address: Target, tls: () => ClientTls, pingMs = PING_MS) {
    this.#address = address;
    this.at = formatTarget(address);
    this.#tls = tls;
    this.#pingMs = pingMs;
  }

  get hasSession(): boolean {
    return this.#session !== undefined;
  }

  /** Opens the session before the first dial. Rejects with a `Refusal`. */
  async warm(): Promise<void> {
    await this.#connect();
  }

  /** A tunnel to the target. Rejects with a `Refusal`, or with the reason of `signal`. */
  async open(authority: string, signal: AbortSignal): Promise<Duplex> {
    const session = this.#session;
    if (session !== undefined) {
      try {
        return await openStream(session, authority, this.at, signal);
      } catch (error) {
        // It was lost with its session, or came after GOAWAY: a new session is asked.
        if (!(session.closed || session.destroyed) || signal.aborted) throw error;
      }
    }
    if (performance.now() < this.#http1Until) return this.#openOverHttp1(authority, signal);
    const fresh = await untilAborted(this.#connect(), signal);
    if (fresh !== undefined) return openStream(fresh, authority, this.at, signal);
    const opened = this.#openOverHttp1(authority, signal);
    const remember = (): void => {
      this.#http1Until = performance.now() + HTTP1_MS;
    };
    opened.then(remember, (error) => error instanceof Refusal && error.kind !== AWAY && remember());
    return opened;
  }

  /** Dials after this use a new session; the streams of the present one go on. */
  renew(): void {
    this.#session?.close();
    this.#session = undefined;
  }

  destroy(): void {
    this.#session?.destroy();
    this.#session = undefined;
  }

  /** Dials at the same time share one session. `undefined`: the server does not speak HTTP/2. */
  #connect(): Promise<ClientHttp2Session | undefined> {
    this.#connecting ??= this.#newSession().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #newSession(): Promise<ClientHttp2Session | undefined> {
    const signal = AbortSignal.timeout(CONNECT_MS);
    const secured = await this.#secured("h2", signal);
    if (secured === undefined) return undefined;
    const { socket, raw } = secured;
    const session = connect(`https://${this.at}`, {
      createConnection: () => socket,
      maxSessionMemory: SESSION_MEMORY,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW },
    });
    session.on("error", ignore);
    try {
      await once(session, "remoteSettings", { signal });
    } catch (error) {
      session.destroy();
      if (signal.aborted) throw serverAway(`the server ${this.at} did not answer`, error);
      return undefined;
    }
    widenClientSession(session, SESSION_WINDOW);
    this.#use(session, raw);
    return session;
  }

  #use(session: ClientHttp2Session, raw: Socket): void {
    this.#session = session;
    const forget = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    session.on("goaway", forget);
    const liveness = livenessOf(session, raw, this.#pingMs);
    session.once("close", () => {
      liveness.stop();
      forget();
    });
  }

  async #openOverHttp1(authority: string, signal: AbortSignal): Promise<Duplex> {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]);
    const secured = await this.#secured("http/1.1", limit);
    if (secured === undefined) throw serverAway(`the server ${this.at} speaks neither HTTP/2 nor HTTP/1.1`);
    return connectOverHttp1(secured.socket, { authority, at: `the server ${this.at}`, signal });
  }

  /** TLS to the server. `undefined`: it has refused the protocol. */
  async #secured(protocol: "h2" | "http/1.1", signal: AbortSignal): Promise<Secured | undefined> {
    const { host } = this.#address;
    const raw = await this.#dialled(signal);
    const socket = tlsOver(raw, host, this.#tls(), protocol);
    try {
      await once(socket, "secureConnect", { signal });
    } catch (error) {
      socket.destroy();
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === NO_PROTOCOL) return undefined;
      const why = signal.aborted ? "it did not answer" : message;
      throw serverAway(`TLS to the server ${this.at} failed: ${why}: check the certificates of both`, error);
    }
    // A server without ALPN speaks HTTP/1.1.
    if (protocol === "http/1.1" || socket.alpnProtocol === protocol) return { socket, raw };
    socket.destroy();
    return undefined;
  }

  async #dialled(signal: AbortSignal) {
    try {
      return await dialTcp(this.#address, `the server ${this.at}`, signal);
    } catch (error) {
      throw serverAway((error as Error).message, error);
    }
  }
}

const AWAY = "destination_unavailable";
const NO_PROTOCOL = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";

/** A CONNECT on a stream of its own (RFC 9113 §8.5). */
function openStream(session: ClientHttp2Session, authority: string, at: string, signal: AbortSignal): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":method": "CONNECT", ":authority": authority });
    const onAbort = (): void => {
      stream.close(NGHTTP2_CANCEL);
      reject(signal.reason);
    };
    const onClose = (): void => {
      leave();
      reject(serverAway(`the server ${at} closed the connection before it answered`));
    };
    const leave = (): void => {
      signal.removeEventListener("abort", onAbort);
      stream.off("close", onClose);
    };
    stream.on("error", ignore);
    stream.on("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    stream.on("response", (headers) => {
      leave();
      const { ":status": status = 0, "proxy-status": field } = headers;
      if (status === 200) {
        failOnReset(stream, "server");
        writeStringsAsBuffers(stream);
        resolve(stream);
      } else void sentenceOf(stream).then((text) => reject(refusalOf(status, field?.toString(), text)));
    });
  });
}

/** The beginning of the body of a refusal, as far as it has come when the stream ends. */
async function sentenceOf(stream: ClientHttp2Stream): Promise<string> {
  let text = "";
  stream.setEncoding("latin1").on("data", (chunk: string) => {
    if (text.length < MAX_SENTENCE) text += chunk;
  });
  stream.end();
  if (!stream.closed) await once(stream, "close").catch(ignore);
  return text;
}

/** Any byte is a sign of life: on a slow line the answer to a ping waits behind megabytes. */
function livenessOf(session: ClientHttp2Session, raw: Socket, pingMs: number): Liveness {
  let bytes = raw.bytesRead;
  let lastByteAt = performance.now();
  return new Liveness(pingMs, {
    lastByteAt: () => {
      if (raw.bytesRead !== bytes) lastByteAt = performance.now();
      bytes = raw.bytesRead;
      return lastByteAt;
    },
    ping: () => session.destroyed || session.ping(ignore),
    dead: (sentence) => session.destroy(new Error(sentence)),
  });
}

function ignore(): void {}
