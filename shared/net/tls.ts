import { constants } from "node:crypto";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import {
  createSecureContext,
  createServer as createTlsServer,
  type SecureVersion,
  type TLSSocket,
  type Server as TlsServer,
} from "node:tls";
import { rawSocketOf } from "./reset.ts";
import { loadServerTls, type TlsFiles, type TlsMaterial } from "./tls-material.ts";
import { type FileWatch, type WatchFilesOptions, watchFiles } from "./watch-files.ts";

export interface TlsLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A handshake that came to nothing. */
export interface FailedHandshake {
  /** `silent`: ended without a byte, as a probe of the port does; `dropped`: the oldest of too many; `failed`: the rest. */
  readonly how: "silent" | "dropped" | "failed";
  readonly error: Error;
  readonly remote: string;
}

export interface TlsListenerOptions {
  readonly material: TlsFiles;
  readonly minVersion?: SecureVersion | undefined;
  /** OpenSSL's list; empty or absent: Node's. */
  readonly ciphers?: string | undefined;
  /** A handshake that takes longer is cut: it holds memory for a stranger. */
  readonly handshakeTimeoutMs: number;
  /** Handshakes in progress at once. One more drops the oldest: real ones take milliseconds, held ones grow old. */
  readonly maxHandshakes: number;
  readonly backlog: number;
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** The handshake is done, whatever the certificate: `judgePeer` decides. Both sockets have an error listener. */
  onSecure(socket: TLSSocket, raw: Socket): void;
  onHandshakeFailed(failed: FailedHandshake): void;
  readonly log: TlsLog;
  readonly watch?: WatchFilesOptions;
}

/**
 * A TCP listener that speaks TLS and asks for a client certificate, without judging it (design: "The caller's side",
 * 5). It is a `net.Server` that hands its sockets to a TLS server, so that a reader of the ClientHello can stand
 * between. Sessions are never resumed: a resumed one would skip the certificate. Files are read again when they change.
 */
export class TlsListener {
  readonly #options: TlsListenerOptions;
  readonly #net: Server;
  readonly #tls: TlsServer;
  readonly #watch: FileWatch;
  /** In the order of arrival, with the address for the log: a socket that was cut no longer knows it. */
  readonly #handshakes = new Map<Socket, string>();
  readonly #open = new Set<Socket>();
  #notAfter: Date;
  #materialError: string | undefined;

  constructor(options: TlsListenerOptions) {
    this.#options = options;
    const { material, handshakeTimeoutMs, keepAliveMs } = options;
    const files = [material.certFile, material.keyFile, material.caFile];
    this.#watch = watchFiles(files, this.#onFilesChanged, options.watch); // before the first read: nothing falls between
    const first = this.#loadFirst();
    this.#notAfter = first.notAfter;
    this.#tls = createTlsServer({
      ...contextOptions(first, options),
      requestCert: true,
      rejectUnauthorized: false,
      handshakeTimeout: handshakeTimeoutMs,
    });
    this.#tls.on("secureConnection", this.#onSecure);
    this.#tls.on("tlsClientError", this.#onTlsError);
    this.#net = createServer({
      allowHalfOpen: false, // until the handshake is done: who ends before that is gone, like a balancer's health check
      noDelay: true,
      ...(keepAliveMs === undefined ? {} : { keepAlive: true, keepAliveInitialDelay: keepAliveMs }),
    });
    this.#net.on("connection", this.#onConnection);
  }

  #loadFirst(): TlsMaterial {
    try {
      const first = loadServerTls(this.#options.material);
      createSecureContext(contextOptions(first, this.#options)); // throws for ciphers that OpenSSL does not know
      return first;
    } catch (error) {
      this.#watch.close();
      throw error;
    }
  }

  /** Rejects with Node's error, for example EADDRINUSE. */
  listen(port: number, host: string): Promise<AddressInfo> {
    const server = this.#net;
    return new Promise((resolve, reject) => {
      const onError = (error: NodeJS.ErrnoException): void => {
        this.#watch.close();
        reject(error);
      };
      server.once("error", onError);
      server.listen({ port, host, backlog: this.#options.backlog }, () => {
        server.off("error", onError);
        server.on("error", (error) => this.#options.log.error({ err: error }, "a listener failed"));
        resolve(server.address() as AddressInfo);
      });
    });
  }

  /** Why the files as they are now are not in use, if they are not. */
  get materialError(): string | undefined {
    return this.#materialError;
  }

  /** When the certificate in use expires. */
  get notAfter(): Date {
    return this.#notAfter;
  }

  /** It takes connections: from `listen` to the end, or to `stopAccepting`. */
  get listening(): boolean {
    return this.#net.listening;
  }

  get handshakes(): number {
    return this.#handshakes.size;
  }

  /** Accepted connections that are still open, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** No new connections, and none that is still in its handshake. Those that were handed over live on. */
  stopAccepting(): void {
    this.#watch.close();
    if (this.#net.listening) this.#net.close();
    for (const raw of this.#handshakes.keys()) raw.destroy();
    this.#handshakes.clear();
  }

  destroyAll(): void {
    this.stopAccepting();
    for (const raw of this.#open) raw.destroy();
  }

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    if (this.#handshakes.size >= this.#options.maxHandshakes) this.#dropOldest();
    const remote = `${raw.remoteAddress}:${raw.remotePort}`;
    this.#handshakes.set(raw, remote);
    this.#open.add(raw);
    raw.on("close", () => {
      this.#open.delete(raw);
      if (!this.#handshakes.delete(raw)) return;
      this.#failed(raw, remote, new Error("the connection ended during the TLS handshake"));
    });
    this.#tls.emit("connection", raw);
  };

  #dropOldest(): void {
    const oldest = this.#handshakes.entries().next().value;
    if (oldest === undefined) return;
    const [raw, remote] = oldest;
    this.#handshakes.delete(raw);
    raw.destroy();
    const error = new Error("too many TLS handshakes at once: the oldest was dropped");
    this.#options.onHandshakeFailed({ how: "dropped", error, remote });
  }

  #failed(raw: Socket, remote: string, error: Error): void {
    this.#options.onHandshakeFailed({ how: raw.bytesRead === 0 ? "silent" : "failed", error, remote });
  }

  readonly #onSecure = (socket: TLSSocket): void => {
    socket.on("error", ignore);
    const raw = rawSocketOf(socket);
    // Not in the map: dropped, or the listener was stopped, while the last step of the handshake was under way.
    if (raw === undefined || !this.#handshakes.delete(raw)) {
      socket.destroy();
      return;
    }
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    this.#options.onSecure(socket, raw);
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const raw = rawSocketOf(socket);
    const remote = raw === undefined ? undefined : this.#handshakes.get(raw);
    if (raw === undefined || remote === undefined) return;
    this.#handshakes.delete(raw);
    // Node leaves the socket open after a timeout. One turn later, because an alert may still be on its way out.
    setImmediate(() => raw.destroy());
    this.#failed(raw, remote, error);
  };

  readonly #onFilesChanged = (): void => {
    const { material, log } = this.#options;
    try {
      const next = loadServerTls(material);
      this.#tls.setSecureContext(contextOptions(next, this.#options));
      this.#notAfter = next.notAfter;
      this.#materialError = undefined;
      log.info({ file: material.certFile, notAfter: next.notAfter }, "certificates were read again");
    } catch (error) {
      this.#materialError = error instanceof Error ? error.message : String(error);
      log.error(
        { file: material.certFile, reason: this.#materialError },
        "new certificates are not usable, the old ones stay",
      );
    }
  };
}

function contextOptions(material: TlsMaterial, options: TlsListenerOptions) {
  return {
    cert: material.cert,
    key: material.key,
    ca: material.ca,
    minVersion: options.minVersion ?? "TLSv1.2",
    ...(options.ciphers ? { ciphers: options.ciphers } : {}),
    // Tickets off; session ids need a cache, which Node leaves to listeners that nobody adds here.
    secureOptions: constants.SSL_OP_NO_TICKET,
  } as const;
}

function ignore(): void {}
