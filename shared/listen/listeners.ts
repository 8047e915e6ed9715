import { constants } from "node:crypto";
import type { Socket } from "node:net";
import {
  createSecureContext,
  createServer as createTlsServer,
  type SecureVersion,
  type TLSSocket,
  type Server as TlsServer,
} from "node:tls";
import { Queue, QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import { rawSocketOf, readWholeRecords, shownCertificate } from "../node/sockets.ts";
import { KEY_EXCHANGE } from "../tls/key-exchange.ts";
import type { TlsMaterial } from "../tls/tls-material.ts";
import type { AcceptRules, HandshakeRefusal, Protocol } from "./accept-rules.ts";
import { Acceptor } from "./acceptor.ts";
import { MAX_CLIENT_HELLO, UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { HandshakeBytes } from "./handshake-bytes.ts";
import { type HandshakeBudget, UNLIMITED } from "./handshake-queue.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import { MAX_V2_CONTENT } from "./preface.ts";

/** One of the names behind a TLS port: its certificate, and the CA that it verifies clients by. */
export interface VirtualHost {
  /** Another object whenever the content is another. */
  readonly tls: TlsMaterial;
  /** How many handshakes may begin under its name. Absent: any number. */
  readonly handshakes?: {
    /** There is a limit now: no handshake may begin for a client that has sent nothing. */
    readonly isSet: boolean;
    budgetFor(address: string): HandshakeBudget;
    /** A client from this address has shown a certificate of this host's CA. */
    proved(address: string): void;
  };
}

/** The virtual hosts of a port. */
export interface VirtualHosts<Host extends VirtualHost> {
  /** Set when every name leads to one host, so that no name needs to be read. */
  readonly single: Host | undefined;
  /** Finds a host by the canonical name in the ClientHello (RFC 6066 §3); `undefined`: the client sent no name. */
  find(serverName: string | undefined): Host | undefined;
}

export interface TlsListenerOptions<Host extends VirtualHost> extends AcceptRules {
  readonly hosts: VirtualHosts<Host>;
  readonly minVersion?: SecureVersion | undefined;
  /** OpenSSL's list; empty or absent: Node's. */
  readonly ciphers?: string | undefined;
  /** The handshake is done, whatever the certificate: `verifyPeer` reads it. Both sockets have an error listener. */
  onConnection(connection: HostedConnection<Host>): void;
}

/** A connection whose virtual host is known. */
export type HostedConnection<Host> = IncomingConnection<Host> & { readonly socket: TLSSocket; readonly host: Host };

/**
 * A TCP listener that speaks TLS and requests a client certificate, and leaves it to others to refuse one. It is a
 * `net.Server` that hands its sockets to TLS servers, one for each virtual host, which never listen themselves:
 * connections wait in between for their handshake, and the server name is read there. So a client that asks for an
 * unknown name is shown no certificate, and no context changes during a handshake. Sessions are never resumed: a
 * resumed one would skip the client certificate.
 *
 * Throws OpenSSL's error for ciphers that it does not know.
 */
export function tlsListener<Host extends VirtualHost>(options: TlsListenerOptions<Host>): Acceptor {
  return new TlsProtocol(options).acceptor;
}

interface PlainListenerOptions extends AcceptRules {
  /** May this address connect at all? Connections from others are closed at once. */
  admits(address: string): boolean;
  /** The socket has an error listener, and its first bytes are still to be read. */
  onConnection(connection: IncomingConnection): void;
}

/** A TCP listener for HTTP without TLS, with the bounds and the order of the TLS listener. */
export function plainListener(options: PlainListenerOptions): Acceptor {
  const acceptor: Acceptor = new Acceptor(options, {
    handshakeName: "HTTP request",
    readsName: () => false,
    lastWord: undefined,
    admits: (address) => options.admits(address),
    onTurn: (connection) => {
      acceptor.complete(connection, connection.raw);
      options.onConnection(connection);
    },
  });
  return acceptor;
}

const FLOOD = "it sent a flood of TLS messages without payload (KeyUpdate, padding)";
const LONG_CHAINS = "its network sends long chains of certificates that are not accepted";

/** TLS as the protocol of a port: a TLS server for each virtual host, which never listens itself. */
class TlsProtocol<Host extends VirtualHost> implements Protocol {
  readonly handshakeName = "TLS handshake";
  readonly mostBefore = MAX_CLIENT_HELLO + MAX_V2_CONTENT;
  readonly lastWord = UNRECOGNIZED_NAME_ALERT;
  readonly acceptor: Acceptor;
  readonly #options: TlsListenerOptions<Host>;
  /** One TLS server for each material in use. */
  readonly #servers = new WeakMap<TlsMaterial, TlsServer | string>();
  readonly #overhead: TlsOverhead;
  readonly #handshakes: HandshakeBytes;

  constructor(options: TlsListenerOptions<Host>) {
    this.#options = options;
    createSecureContext(contextOptions(options)); // may throw
    this.#overhead = new TlsOverhead();
    this.#handshakes = new HandshakeBytes();
    this.acceptor = new Acceptor(options, this);
  }

  readsName(): boolean {
    return this.#options.hosts.single === undefined;
  }

  maySkipPreface(): boolean {
    return this.#options.hosts.single?.handshakes?.isSet !== true;
  }

  budgetFor(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal {
    const host = this.#hostOf(connection);
    if ("sentence" in host) return host;
    return host.handshakes?.budgetFor(connection.source.address) ?? UNLIMITED;
  }

  onDestroyed(): void {
    this.#overhead.stop();
    this.#handshakes.stop();
  }

  /** The virtual host that the client asks for, or why there is none (RFC 6066 §3: unrecognized_name). */
  #hostOf({ hello }: IncomingConnection): Host | HandshakeRefusal {
    const { hosts } = this.#options;
    const name = hello?.serverName;
    const host = hello === undefined ? hosts.single : hosts.find(name);
    if (host !== undefined) return host;
    if (name === undefined) return { sentence: "it asks for no server name (SNI), and one is needed here" };
    return { sentence: `no cluster has the server name "${name}"` };
  }

  /** The virtual host is found again, since clusters may have changed while the client waited. */
  onTurn(connection: IncomingConnection): void {
    const host = this.#hostOf(connection);
    if ("sentence" in host) {
      this.acceptor.refuse(connection, host);
      return;
    }
    const { tls } = host;
    const server = this.#serverOf(tls);
    if (typeof server === "string") {
      this.acceptor.refuse(connection, { sentence: server, silently: true });
      return;
    }
    connection.host = host;
    connection.verifiedBy = tls.ca;
    const { raw, network } = connection;
    this.#handshakes.watch(raw, network, () => this.acceptor.endFlood(connection, LONG_CHAINS));
    server.emit("connection", raw);
  }

  /** A sentence: OpenSSL refuses certificate or key, for example a key that is too short. */
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
        ALPNCallback: chooseProtocol,
        requestCert: true,
        rejectUnauthorized: false,
        handshakeTimeout: this.#options.handshakeTimeoutMs,
      });
    } catch (error) {
      return `the certificate of this virtual host cannot be used: ${(error as Error).message}`;
    }
    server.on("secureConnection", this.#onSecure);
    readWholeRecords(server);
    server.on("tlsClientError", this.#onTlsError);
    return server;
  }

  readonly #onSecure = (socket: TLSSocket): void => {
    socket.on("error", () => {});
    const connection = connectionOf<Host>(socket);
    // Without a certificate, the long part is a request with a token, which may have come as well.
    const isHarmless = () => socket.authorized || shownCertificate(socket) === undefined;
    if (connection !== undefined) this.#handshakes.leave(connection.raw, isHarmless);
    // It is over already if it was dropped, or the listener was stopped, during the last step of the handshake.
    if (connection === undefined || !this.acceptor.complete(connection, socket)) {
      socket.destroy();
      return;
    }
    this.#overhead.watch(connection.raw, socket, () => this.acceptor.endFlood(connection, FLOOD));
    if (socket.authorized) connection.host?.handshakes?.proved(connection.source.address);
    this.#options.onConnection(connection as HostedConnection<Host>); // `#onTurn` has set the host
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const connection = connectionOf(socket);
    if (connection !== undefined) this.#handshakes.leave(connection.raw, () => false);
    if (connection === undefined || !this.acceptor.fail(connection, error)) return;
    // Node leaves the socket open after a timeout. One turn later, because an alert may still be on its way out.
    setImmediate(() => connection.raw.destroy());
  };
}

/** The connection beneath a TLS socket in its handshake. */
function connectionOf<Host>(socket: TLSSocket): IncomingConnection<Host> | undefined {
  const raw = rawSocketOf(socket);
  return raw && IncomingConnection.of(raw);
}

type ContextSettings = Pick<TlsListenerOptions<VirtualHost>, "minVersion" | "ciphers">;

function contextOptions({ minVersion, ciphers }: ContextSettings, material?: TlsMaterial) {
  return {
    // Without a CA no certificate is accepted; left out, the system's CAs would count.
    ca: material?.ca || [],
    ...(material && { cert: material.cert, key: material.key }),
    minVersion: minVersion ?? "TLSv1.2",
    ...(ciphers ? { ciphers } : {}),
    ecdhCurve: KEY_EXCHANGE,
    // Tickets off; session ids need a cache, and `readWholeRecords` has none.
    secureOptions: constants.SSL_OP_NO_TICKET,
  } as const;
}

/**
 * HTTP/1.1 if the client offers it. A gRPC client offers HTTP/2 alone, and gets it so that a sentence can answer its
 * first bytes. Otherwise the first protocol offered: Node's callback must choose one or fail the handshake.
 */
function chooseProtocol({ protocols }: { readonly protocols: readonly string[] }): string | undefined {
  return ["http/1.1", "h2"].find((name) => protocols.includes(name)) ?? protocols[0];
}

/**
 * A record with one byte of payload has at most so many bytes, whatever the cipher (RFC 8446 §5.2, RFC 5246 §6.2.3).
 * Anything beyond that is padding, or messages of TLS itself such as KeyUpdate.
 */
const RECORD_BYTES = 128;
/** Bytes that TLS may send without payload (handshake, certificates, …), and how many are regained each second. */
const BURST_BYTES = 64 * 1024;
const BYTES_PER_SECOND = 16 * 1024;
const LOOK_MS = 50;
/**
 * A flood on a new connection is noticed at the next look. Of thousands of new ones, so many are checked in one look,
 * and the others in the following looks.
 */
const YOUNG_IN_A_LOOK = 256;
const YOUNG_MS = 15_000;
/** A connection that is older is checked once in so many looks: each second. */
const LOOKS_FOR_OLD = 20;

/** A connection, and the bytes that it may still waste. */
interface WatchedConnection {
  readonly raw: Pick<Socket, "bytesRead">;
  readonly socket: Pick<Socket, "bytesRead">;
  readonly sinceMs: number;
  leftBytes: number;
  rawBytes: number;
  payloadBytes: number;
  lookedAtMs: number;
  onFlood(): void;
}

/**
 * Finds TLS connections whose peers send a flood of TLS messages without payload. Each KeyUpdate (RFC 8446 §4.6.3)
 * costs a key derivation. Neither Node nor OpenSSL counts them, so bytes received are compared with their payload.
 */
export class TlsOverhead {
  /** Both queues are in the order of the next check. */
  readonly #young = new Queue<WatchedConnection>();
  readonly #old = new Queue<WatchedConnection>();
  readonly #place = SharedInterval.every(LOOK_MS).add(() => this.#look());

  /** Watches a connection whose handshake is done, until it closes. `onFlood` is called at most once. */
  watch(raw: Socket, socket: Socket, onFlood: () => void): void {
    const now = performance.now();
    const place: QueueNode<WatchedConnection> = new QueueNode({
      ...{ raw, socket, onFlood, sinceMs: now, lookedAtMs: now },
      ...{ leftBytes: BURST_BYTES, rawBytes: 0, payloadBytes: 0 },
    });
    this.#young.join(place);
    raw.once("close", () => place.leave());
  }

  stop(): void {
    this.#place.leave();
    this.#young.clear();
    this.#old.clear();
  }

  #look(): void {
    const now = performance.now();
    this.#lookAt(this.#young, YOUNG_IN_A_LOOK, now);
    this.#lookAt(this.#old, Math.ceil(this.#old.size / LOOKS_FOR_OLD), now);
  }

  #lookAt(watched: Queue<WatchedConnection>, most: number, now: number): void {
    for (let left = Math.min(most, watched.size); left > 0; left--) {
      const place = watched.first;
      if (place === undefined) return;
      place.leave();
      const { member } = place;
      if (!this.#isWithin(member, now)) member.onFlood();
      else if (now - member.sinceMs > YOUNG_MS) this.#old.join(place);
      else this.#young.join(place);
    }
  }

  #isWithin(watched: WatchedConnection, now: number): boolean {
    const { raw, socket, leftBytes, rawBytes, payloadBytes, lookedAtMs } = watched;
    const wasted = wastedBytes(raw.bytesRead - rawBytes, socket.bytesRead - payloadBytes);
    const regained = ((now - lookedAtMs) / 1_000) * BYTES_PER_SECOND;
    watched.leftBytes = Math.min(BURST_BYTES, leftBytes + regained) - wasted;
    watched.rawBytes = raw.bytesRead;
    watched.payloadBytes = socket.bytesRead;
    watched.lookedAtMs = now;
    return watched.leftBytes >= 0;
  }
}

/** The number of bytes of TLS that the payload in them does not explain. */
export function wastedBytes(rawBytes: number, payloadBytes: number): number {
  return Math.max(0, rawBytes - RECORD_BYTES * payloadBytes);
}
