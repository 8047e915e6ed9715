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
import { UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { readFirst } from "./first-bytes.ts";
import { type FirstWords, FirstWordsReader } from "./first-words.ts";
import type { Endpoint } from "./proxy-protocol.ts";
import { rawSocketOf } from "./reset.ts";
import { tellSource } from "./source.ts";
import type { TlsMaterial } from "./tls-material.ts";
import { type FailedHandshake, WaitingRoom } from "./waiting-room.ts";

/** One of the names behind a port: what it shows, and whose certificates it knows. */
export interface TlsDoor {
  /** Another object whenever the content is another. */
  readonly tls: TlsMaterial;
  /** Why no handshake may begin at this door now; each `undefined` counts as one. */
  refusesHandshake?(): string | undefined;
}

/** Which door a client came to. */
export interface TlsDoors<Door extends TlsDoor> {
  /** All names lead to one door: nobody needs to read them. */
  readonly single: Door | undefined;
  /** By the canonical name in the ClientHello (RFC 6066 §3); `undefined` is one that names nobody. */
  find(serverName: string | undefined): Door | undefined;
}

/** Whether balancers say who is behind them (PROXY protocol, version 1 or 2). */
export interface ProxyProtocolRule {
  readonly required: boolean;
  /** Is this address one of the balancers? From others a header is refused. */
  trusts(address: string): boolean;
}

export interface TlsListenerOptions<Door extends TlsDoor> {
  readonly doors: TlsDoors<Door>;
  /** Absent: nobody stands between that would say who the client is. */
  readonly proxyProtocol?: ProxyProtocolRule | undefined;
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
  onSecure(socket: TLSSocket, door: Door, backInMs: number | undefined): void;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** The listener as a whole has failed; it does not recover. */
  onError(error: Error): void;
}

const judgedBy = new WeakMap<TLSSocket, string>();

/** `socket.authorized` was decided by this CA (PEM). */
export function tellJudgedBy(socket: TLSSocket, ca: string): void {
  judgedBy.set(socket, ca);
}

/** The CA (PEM) by which `socket.authorized` was decided, where that was told. */
export function judgedByCa(socket: TLSSocket): string | undefined {
  return judgedBy.get(socket);
}

/** How long a client that was refused may take to read why, ms. */
const LINGER_MS = 1_000;

/** A handshake in progress. */
interface Handshake<Door> {
  readonly arrival: Arrival;
  /** Known when its name has been read. */
  door: Door | undefined;
  /** By which its client's certificate is judged: the door may have another when the handshake is done. */
  ca: string;
  /** Who is behind the balancer, if there is one. */
  source: Endpoint | undefined;
  /** What to tell the client in place of letting it in. */
  readonly backInMs: number | undefined;
}

/**
 * A TCP listener that speaks TLS and asks for a client certificate, without judging it (design: "The caller's side",
 * 5). It is a `net.Server` that hands its sockets to TLS servers, one for each door, which themselves never listen: who
 * waits for a handshake waits between, and a name is read there. So a name that is nobody's never meets a certificate, and
 * no context is ever changed under a handshake. Sessions are never resumed: a resumed one would skip the certificate.
 */
export class TlsListener<Door extends TlsDoor = TlsDoor> {
  readonly #options: TlsListenerOptions<Door>;
  readonly #net: Server;
  /** One for each material that has been asked for. */
  readonly #servers = new WeakMap<TlsMaterial, TlsServer | string>();
  readonly #room: WaitingRoom;
  /** Handshakes in progress, in the order in which they began. */
  readonly #handshakes = new Map<Socket, Handshake<Door>>();
  /** Accepted and not closed; with the TLS socket on top once that was handed over. */
  readonly #open = new Map<Socket, TLSSocket | undefined>();

  /** Throws OpenSSL's error for ciphers that it does not know. */
  constructor(options: TlsListenerOptions<Door>) {
    this.#options = options;
    createSecureContext(contextOptions(options));
    const { handshakeTimeoutMs, keepAliveMs } = options;
    this.#room = new WaitingRoom({
      maxWaiting: options.maxWaitingHandshakes,
      deadlineMs: handshakeTimeoutMs,
      maxBegun: options.maxHandshakes,
      turnsAway: options.turnsAway,
      begin: (arrival, backInMs) => this.#begin({ arrival, backInMs, door: undefined, ca: "", source: undefined }),
      onFailed: (failed) => options.onHandshakeFailed(failed),
    });
    this.#net = createServer({
      allowHalfOpen: false, // until the handshake is done: who ends before that is gone, like a balancer's health check
      noDelay: true,
      ...(keepAliveMs === undefined ? {} : { keepAlive: true, keepAliveInitialDelay: keepAliveMs }),
    });
    this.#net.on("connection", this.#onConnection);
  }

  /** Rejects with Node's error, for example EADDRINUSE. */
  listen(port: number, host: string): Promise<AddressInfo> {
    const server = this.#net;
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen({ port, host, backlog: this.#options.backlog }, () => {
        server.off("error", reject);
        server.on("error", (error) => this.#options.onError(error));
        resolve(server.address() as AddressInfo);
      });
    });
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

  #begin(handshake: Handshake<Door>): void {
    const { raw } = handshake.arrival;
    if (this.#handshakes.size >= this.#options.maxHandshakes) this.#dropOldest();
    this.#handshakes.set(raw, handshake);
    raw.on("close", () => {
      if (this.#over(raw)) this.#failed(handshake, new Error("the connection ended during the TLS handshake"));
    });
    const { single } = this.#options.doors;
    if (single !== undefined && this.#options.proxyProtocol === undefined) this.#greet(handshake, single);
    else this.#listenTo(handshake);
  }

  #listenTo(handshake: Handshake<Door>): void {
    const { raw } = handshake.arrival;
    const { proxyProtocol } = this.#options;
    if (proxyProtocol?.required === true && !proxyProtocol.trusts(raw.remoteAddress ?? "")) {
      this.#refuse(
        handshake,
        "only the balancers may come here (PROXY protocol), and its address is none of theirs",
        true,
      );
      return;
    }
    const reader = new FirstWordsReader({
      proxyHeader: this.#proxyHeader(raw),
      name: this.#options.doors.single === undefined,
    });
    readFirst<FirstWords>(raw, {
      reader: (chunk) => reader.push(chunk),
      timeoutMs: this.#options.handshakeTimeoutMs,
      onFound: (words) => this.#onWords(handshake, words),
      onLate: () => this.#refuse(handshake, "the ClientHello did not come to its end"),
    });
  }

  #proxyHeader(raw: Socket): "ignored" | "forbidden" | "optional" | "required" {
    const { proxyProtocol } = this.#options;
    if (proxyProtocol === undefined) return "ignored";
    if (!proxyProtocol.trusts(raw.remoteAddress ?? "")) return "forbidden";
    return proxyProtocol.required ? "required" : "optional";
  }

  #onWords(handshake: Handshake<Door>, words: FirstWords): void {
    if (words.problem !== undefined) {
      this.#refuse(handshake, words.problem, words.beforeTls);
      return;
    }
    handshake.source = words.source;
    const { doors } = this.#options;
    const name = words.hello?.serverName;
    const door = words.hello === undefined ? doors.single : doors.find(name);
    if (door !== undefined) this.#greet(handshake, door);
    else if (name === undefined) this.#refuse(handshake, "it asks for no server name (SNI), and one is needed here");
    else this.#refuse(handshake, `no cluster has the server name "${name}"`);
  }

  /** Nobody is shown a certificate who has not asked for the right name (RFC 6066 §3: unrecognized_name). */
  #refuse(handshake: Handshake<Door>, sentence: string, beforeTls = false): void {
    const { raw } = handshake.arrival;
    if (this.#over(raw) === undefined) return;
    if (beforeTls) raw.end();
    else raw.end(UNRECOGNIZED_NAME_ALERT);
    raw.resume(); // what else it says is not read, but its end is
    setTimeout(() => raw.destroy(), LINGER_MS).unref();
    this.#failed(handshake, new Error(sentence));
  }

  #greet(handshake: Handshake<Door>, door: Door): void {
    const refusal = door.refusesHandshake?.();
    if (refusal !== undefined) {
      this.#refuse(handshake, refusal, true);
      return;
    }
    const server = this.#serverOf(door.tls);
    if (typeof server === "string") {
      this.#refuse(handshake, server, true);
      return;
    }
    handshake.door = door;
    handshake.ca = door.tls.ca;
    server.emit("connection", handshake.arrival.raw);
  }

  /** A sentence: OpenSSL takes neither, for example a key that is too short. */
  #serverOf(material: TlsMaterial): TlsServer | string {
    const known = this.#servers.get(material);
    if (known !== undefined) return known;
    const made = this.#makeServer(material);
    this.#servers.set(material, made);
    return made;
  }

  #makeServer(material: TlsMaterial): TlsServer | string {
    let server: TlsServer;
    try {
      server = createTlsServer({
        ...contextOptions(this.#options, material),
        requestCert: true,
        rejectUnauthorized: false,
        handshakeTimeout: this.#options.handshakeTimeoutMs,
      });
    } catch (error) {
      return `the certificate of this door cannot be used: ${(error as Error).message}`;
    }
    server.on("secureConnection", this.#onSecure);
    server.on("resumeSession", neverResumed);
    server.on("tlsClientError", this.#onTlsError);
    return server;
  }

  /** Undefined for one that was over already: dropped, failed, or ended with the listener. */
  #over(raw: Socket | undefined): Handshake<Door> | undefined {
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

  #failed({ arrival, source }: Handshake<Door>, error: Error): void {
    const remote = source === undefined ? arrival.remote : `${source.address}:${source.port}`;
    this.#options.onHandshakeFailed({ how: "failed", error, remote });
  }

  readonly #onSecure = (socket: TLSSocket): void => {
    socket.on("error", ignore);
    const raw = rawSocketOf(socket);
    const handshake = this.#over(raw);
    // Over already: dropped, or the listener was stopped, while the last step of the handshake was under way.
    if (raw === undefined || handshake?.door === undefined) {
      socket.destroy();
      return;
    }
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    this.#open.set(raw, socket);
    tellJudgedBy(socket, handshake.ca);
    if (handshake.source !== undefined) tellSource(socket, handshake.source);
    this.#options.onSecure(socket, handshake.door, handshake.backInMs);
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const handshake = this.#over(rawSocketOf(socket));
    if (handshake === undefined) return;
    const { raw } = handshake.arrival;
    // Node leaves the socket open after a timeout. One turn later, because an alert may still be on its way out.
    setImmediate(() => raw.destroy());
    this.#failed(handshake, error);
  };
}

type ContextSettings = Pick<TlsListenerOptions<TlsDoor>, "minVersion" | "ciphers">;

function contextOptions({ minVersion, ciphers }: ContextSettings, material?: TlsMaterial) {
  return {
    // Without a CA nobody's certificate counts; left out, it would be the system's.
    ...(material && { cert: material.cert, key: material.key, ca: material.ca === "" ? [] : material.ca }),
    minVersion: minVersion ?? "TLSv1.2",
    ...(ciphers ? { ciphers } : {}),
    // Tickets off; session ids need a cache, and `neverResumed` has none.
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
