import { constants } from "node:crypto";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import {
  createSecureContext,
  createServer as createTlsServer,
  type SecureVersion,
  type TLSSocket,
  type Server as TlsServer,
} from "node:tls";
import type { Arrival } from "./arrival.ts";
import { rawSocketOf } from "./reset.ts";
import { loadServerTls, type TlsFiles, type TlsMaterial } from "./tls-material.ts";
import { type FailedHandshake, WaitingRoom } from "./waiting-room.ts";
import { type FileWatch, type WatchFilesOptions, watchFiles } from "./watch-files.ts";

export interface TlsLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface TlsListenerOptions {
  readonly material: TlsFiles;
  readonly minVersion?: SecureVersion | undefined;
  /** OpenSSL's list; empty or absent: Node's. */
  readonly ciphers?: string | undefined;
  /** A handshake that takes longer is cut, and so is a connection that waits for one: they hold memory for a stranger. */
  readonly handshakeTimeoutMs: number;
  /**
   * Handshakes in progress at once, and connections that have said nothing. One more drops the oldest: real ones take
   * milliseconds, held ones grow old.
   */
  readonly maxHandshakes: number;
  /** Clients that wait for their handshake to begin: it does so in order, a few at a time. */
  readonly maxWaitingHandshakes: number;
  /** Some of those whose turn would come too late are let in to be told so: `onSecure` with `backInMs`. */
  readonly turnsAway: boolean;
  readonly backlog: number;
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** The handshake is done, whatever the certificate: `judgePeer` decides. Both sockets have an error listener. */
  onSecure(socket: TLSSocket, raw: Socket, backInMs: number | undefined): void;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** Certificate, key or CA have changed: who came before was judged by the old ones. */
  onRenewed?(): void;
  readonly log: TlsLog;
  readonly watch?: WatchFilesOptions;
}

/** A handshake in progress. */
interface Handshake {
  readonly arrival: Arrival;
  /** What to tell the client in place of letting it in. */
  readonly backInMs: number | undefined;
}

/**
 * A TCP listener that speaks TLS and asks for a client certificate, without judging it (design: "The caller's side",
 * 5). It is a `net.Server` that hands its sockets to a TLS server, so that a reader of the ClientHello can stand
 * between; who waits for a handshake waits there. Sessions are never resumed: a resumed one would skip the certificate. Files are read again when they change.
 */
export class TlsListener {
  readonly #options: TlsListenerOptions;
  readonly #net: Server;
  readonly #tls: TlsServer;
  readonly #watch: FileWatch;
  readonly #room: WaitingRoom;
  /** Handshakes in progress, in the order in which they began. */
  readonly #handshakes = new Map<Socket, Handshake>();
  /** Accepted and not closed; with the TLS socket on top once that was handed over. */
  readonly #open = new Map<Socket, TLSSocket | undefined>();
  #notAfter: Date;
  #materialError: string | undefined;

  constructor(options: TlsListenerOptions) {
    this.#options = options;
    const { material, handshakeTimeoutMs, keepAliveMs } = options;
    const files = [material.certFile, material.keyFile, material.caFile];
    this.#watch = watchFiles(files, this.#onFilesChanged, options.watch); // before the first read: nothing falls between
    const first = this.#loadFirst();
    this.#notAfter = first.notAfter;
    this.#room = new WaitingRoom({
      maxWaiting: options.maxWaitingHandshakes,
      deadlineMs: handshakeTimeoutMs,
      maxBegun: options.maxHandshakes,
      turnsAway: options.turnsAway,
      begin: (arrival, backInMs) => this.#begin({ arrival, backInMs }),
      onFailed: (failed) => options.onHandshakeFailed(failed),
    });
    this.#tls = createTlsServer({
      ...contextOptions(first, options),
      requestCert: true,
      rejectUnauthorized: false,
      handshakeTimeout: handshakeTimeoutMs,
    });
    this.#tls.on("secureConnection", this.#onSecure);
    this.#tls.on("resumeSession", neverResumed);
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

  /** Connections whose handshake is not done: it is in progress, or has not begun. */
  get handshakes(): number {
    return this.#handshakes.size + this.#room.size;
  }

  /** Accepted connections that are still open, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** No new connections, and none that is still in its handshake. Those that were handed over live on. */
  stopAccepting(): void {
    this.#watch.close();
    if (this.#net.listening) this.#net.close();
    this.#room.clear();
    for (const raw of this.#handshakes.keys()) raw.destroy();
    this.#handshakes.clear();
  }

  destroyAll(): void {
    this.stopAccepting();
    // From above: Node 20 dies of a TCP socket that is destroyed beneath a TLS socket which is just saying goodbye.
    for (const [raw, socket] of this.#open) (socket ?? raw).destroy();
  }

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    this.#open.set(raw, undefined);
    raw.on("close", () => this.#open.delete(raw));
    this.#room.add(raw);
  };

  #begin(handshake: Handshake): void {
    const { raw } = handshake.arrival;
    if (this.#handshakes.size >= this.#options.maxHandshakes) this.#dropOldest();
    this.#handshakes.set(raw, handshake);
    raw.on("close", () => {
      if (this.#over(raw)) this.#failed(handshake, new Error("the connection ended during the TLS handshake"));
    });
    this.#tls.emit("connection", raw);
  }

  /** Undefined for one that was over already: dropped, failed, or ended with the listener. */
  #over(raw: Socket | undefined): Handshake | undefined {
    const handshake = raw && this.#handshakes.get(raw);
    if (handshake === undefined) return undefined;
    const { arrival } = handshake;
    this.#handshakes.delete(arrival.raw);
    this.#room.done(arrival);
    return handshake;
  }

  #dropOldest(): void {
    const [oldest] = this.#handshakes.keys();
    const handshake = this.#over(oldest);
    if (handshake === undefined) return;
    const { raw, remote } = handshake.arrival;
    raw.destroy();
    const error = new Error("too many TLS handshakes at once: the oldest was dropped");
    this.#options.onHandshakeFailed({ how: "dropped", error, remote });
  }

  #failed({ arrival: { remote } }: Handshake, error: Error): void {
    this.#options.onHandshakeFailed({ how: "failed", error, remote });
  }

  readonly #onSecure = (socket: TLSSocket): void => {
    socket.on("error", ignore);
    const raw = rawSocketOf(socket);
    const handshake = this.#over(raw);
    // Over already: dropped, or the listener was stopped, while the last step of the handshake was under way.
    if (raw === undefined || handshake === undefined) {
      socket.destroy();
      return;
    }
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    this.#open.set(raw, socket);
    this.#options.onSecure(socket, raw, handshake.backInMs);
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const handshake = this.#over(rawSocketOf(socket));
    if (handshake === undefined) return;
    const { raw } = handshake.arrival;
    // Node leaves the socket open after a timeout. One turn later, because an alert may still be on its way out.
    setImmediate(() => raw.destroy());
    this.#failed(handshake, error);
  };

  readonly #onFilesChanged = (): void => {
    const { material, log } = this.#options;
    try {
      const next = loadServerTls(material);
      this.#tls.setSecureContext(contextOptions(next, this.#options));
      this.#notAfter = next.notAfter;
      this.#materialError = undefined;
      log.info({ file: material.certFile, notAfter: next.notAfter }, "certificates were read again");
      this.#options.onRenewed?.();
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

/**
 * What it is for is its presence: Node then reads into buffers of 16 KiB. Else the first bytes given back by `unshift`, a
 * ClientHello, make the first buffer of the ring as small as 1 KiB, and every second read from then on is of 1 KiB: a
 * fifth more of the server's time in downloads (docs/decisions/0010).
 */
function neverResumed(_sessionId: Buffer, answer: (error: null, session: null) => void): void {
  answer(null, null);
}

function ignore(): void {}
