import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls, type TLSSocket } from "node:tls";
import {
  type Authenticator,
  type ConnectionOptions,
  credsAuthenticator,
  type NatsConnection,
  NatsConnectionImpl,
  type Server,
  setTransportFactory,
  type Transport,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import { sniOf } from "../../shared/address/server-name.ts";
import { formatTarget } from "../../shared/address/target.ts";
import { buildInfo } from "../../shared/basics/program.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { connectTcp } from "../../shared/net/connect-tcp.ts";
import { trustIn } from "../../shared/tls/authorities.ts";
import { loadClientTls } from "../../shared/tls/tls-material.ts";
import type { ServerOptions } from "../options/options.ts";

/** Time for one NATS server to be reached, ms. */
export const DIAL_MS = 3_000;
/** The part of it for TCP, ms. The client would not say which server it was, and what its addresses have met. */
const CONNECT_MS = DIAL_MS - 100;
/** A connection on which two pings in a row are not answered is lost, ms between them. */
const PING_MS = 2_000;
const MAX_PINGS = 2;

/**
 * A connection to NATS over a transport of our own. The client's would buffer any number of bytes: a first line without
 * an end, what comes after a line that it cannot read, and what a server does not take. Here a server that sends too
 * much is read more slowly, and the client's pings end a connection on which they are not answered. Rejects also with
 * what is wrong with a file.
 */
export async function connectNats(options: ServerOptions): Promise<NatsConnection> {
  setTransportFactory({ factory: () => new BoundedTransport() });
  return await NatsConnectionImpl.connect(connectionOptions(options));
}

/** Files are read each time, so that renewed ones count from the next connection on. */
function connectionOptions(options: ServerOptions): ConnectionOptions {
  const { serverId, directory, directoryCaCert: caFile, directoryCert: certFile, directoryKey: keyFile } = options;
  const { ca, cert, key } = loadClientTls({ caFile, certFile, keyFile });
  const wantsTls = caFile !== "" || certFile !== "" || directory.some((url) => url.startsWith("tls:"));
  const authenticator = readCredentials(options.directoryCredentials);
  return {
    servers: directory.map((url) => new URL(url).host),
    name: `culvert ${serverId}`,
    timeout: DIAL_MS,
    pingInterval: PING_MS,
    maxPingOut: MAX_PINGS,
    // The directory itself connects again, with nothing that has waited meanwhile.
    reconnect: false,
    // Servers that NATS names by itself are not those that the operator has named.
    ignoreClusterUpdates: true,
    // A server does not answer itself.
    noEcho: true,
    noAsyncTraces: true,
    resolve: false,
    ...(wantsTls && { tls: { ...(ca && { ca }), ...(cert && key && { cert, key }) } }),
    ...(authenticator && { authenticator }),
  };
}

/** A .creds file of NATS (a JWT and the seed of its key), or one line `USER:PASSWORD`. */
function readCredentials(path: string): Authenticator | undefined {
  if (path === "") return undefined;
  const content = readBoundedSync(path);
  const text = content.toString("utf8").trim();
  if (text.includes("-----BEGIN")) return credsAuthenticator(content);
  const colon = text.indexOf(":");
  if (colon < 1 || text.includes("\n")) {
    throw new Error(`${path} is neither a .creds file of NATS nor one line USER:PASSWORD`);
  }
  return usernamePasswordAuthenticator(text.slice(0, colon), text.slice(colon + 1));
}

/** Maximum length of the first line of a NATS server, its INFO, bytes. */
export const MAX_INFO_BYTES = 32 * 1024;
/** Bytes a second, and at once, that a NATS server may send: all questions and answers of a large fleet are fewer. */
export const READ_RATE = { perSecond: 1024 * 1024, burst: 4 * 1024 * 1024 };
/** Bytes that may wait for a NATS server that does not read. */
const MAX_UNSENT_BYTES = 1024 * 1024;

const INFO = /^INFO\s+(\{.*\})\s*\r\n/i;

/** TCP, the INFO of the server, TLS if one of the two wants it; then bytes in both directions. */
class BoundedTransport implements Transport {
  readonly lang = "nats.js";
  readonly version = buildInfo().version;
  closeError?: Error;
  readonly #closed = deferred<undefined | Error>();
  readonly #rate = new TokenBucket(READ_RATE);
  readonly #dialling = new AbortController();
  #socket: Socket | undefined;
  #info: Uint8Array = new Uint8Array();
  /** `host:port` of the server, and when it has sent something last, ms of `performance.now()`. */
  #at = "";
  #readAt = 0;
  #isConnected = false;
  #isOver = false;

  get isClosed(): boolean {
    return this.#isOver;
  }

  async connect({ hostname: host, port }: Server, { tls }: ConnectionOptions): Promise<void> {
    this.#at = formatTarget({ host, port });
    try {
      const inTime = AbortSignal.any([this.#dialling.signal, AbortSignal.timeout(CONNECT_MS)]);
      const raw = await connectTcp({ host, port }, inTime);
      this.#socket = raw;
      const info = await this.#readInfo(raw);
      const { tls_required: isRequired, tls_available: isAvailable } = parseInfo(info);
      if (tls && isRequired !== true && isAvailable !== true) throw new Error("the NATS server offers no TLS");
      const socket = isRequired === true || isAvailable === true ? await this.#secure(raw, host, tls) : raw;
      if (this.#isOver) throw new Error("the connection was given up");
      this.#info = info;
      this.#socket = socket;
      this.#isConnected = true;
      this.#readAt = performance.now();
      socket
        .on("error", (error) => {
          this.closeError ??= error;
        })
        .on("close", () => this.#end());
    } catch (error) {
      this.#socket?.destroy();
      throw new Error(`NATS at ${this.#at}: ${(error as Error).message}`, { cause: error });
    }
  }

  async #readInfo(raw: Socket): Promise<Buffer> {
    let received = Buffer.alloc(0);
    const whole = deferred();
    const onData = (chunk: Buffer): void => {
      received = Buffer.concat([received, chunk]);
      if (received.includes("\r\n")) whole.resolve();
      else if (received.length > MAX_INFO_BYTES) whole.reject(new Error("the NATS server's first line is too long"));
    };
    raw.on("data", onData);
    try {
      await Promise.race([whole.promise, settled(raw, "never")]);
    } finally {
      raw.off("data", onData).pause();
    }
    return received;
  }

  async #secure(raw: Socket, host: string, tls: ConnectionOptions["tls"]): Promise<TLSSocket> {
    // Explicit, because NODE_TLS_REJECT_UNAUTHORIZED=0 would change the default.
    const socket = connectTls({
      ...tls,
      ...trustIn(tls?.ca),
      socket: raw,
      host,
      ...sniOf(host),
      rejectUnauthorized: true,
    });
    this.#socket = socket;
    await settled(socket, "secureConnect");
    return socket;
  }

  /** The client reads here, and leaves when it cannot read something: then the connection is over. */
  async *[Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    try {
      yield this.#info;
      // When the client leaves, the socket ends below, and without an error of Node's.
      for await (const chunk of (this.#socket as Socket).iterator({ destroyOnReturn: false })) {
        this.#readAt = performance.now();
        yield chunk;
        const waitMs = this.#rate.charge(chunk.length);
        if (waitMs > 0) await sleep(waitMs, undefined, { ref: false });
      }
    } catch {
      // The client learns of it from `closed`.
    } finally {
      this.#socket?.destroy();
    }
  }

  send(frame: Uint8Array): void {
    const socket = this.#socket;
    if (this.#isOver || socket === undefined || socket.destroyed) return;
    if (socket.writableLength > MAX_UNSENT_BYTES) socket.destroy(new Error("the NATS server does not read"));
    else socket.write(frame);
  }

  isEncrypted(): boolean {
    return this.#socket !== undefined && "encrypted" in this.#socket;
  }

  async close(error?: Error): Promise<void> {
    if (!this.#isConnected) return this.discard(); // the client goes on with the next server
    if (error !== undefined) this.closeError ??= error;
    this.#socket?.destroySoon();
    this.#end();
  }

  /** The client gives up a server that answers no pings, or one that has refused its credentials. */
  disconnect(): void {
    if (performance.now() - this.#readAt >= PING_MS) {
      this.closeError ??= new Error(`NATS at ${this.#at} answers no pings: check its process, and what is on the way`);
    }
    this.#socket?.destroy();
  }

  discard(): void {
    this.#isOver = true;
    this.#dialling.abort();
    this.#socket?.destroy();
  }

  closed(): Promise<undefined | Error> {
    return this.#closed.promise;
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#closed.resolve(this.closeError);
  }
}

function parseInfo(bytes: Buffer): { readonly tls_required?: unknown; readonly tls_available?: unknown } {
  const [, json] = INFO.exec(bytes.toString("utf8")) ?? [];
  if (json === undefined) throw new Error("no NATS server answers there");
  return JSON.parse(json);
}

/** Resolves with the event; rejects if the socket fails or closes before. */
function settled(socket: Socket, event: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once(event, () => resolve());
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("the NATS server closed the connection")));
  });
}
