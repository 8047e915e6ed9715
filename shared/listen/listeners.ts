import { constants } from "node:crypto";
import { createSecureContext, type SecureVersion, type TLSSocket, type Server as TlsServer } from "node:tls";
import { getOrMake } from "../basics/collections.ts";
import { rawSocketOf, readWholeRecords, tlsServerOn } from "../node/sockets.ts";
import { trustIn } from "../tls/authorities.ts";
import { isHarmless } from "../tls/identity.ts";
import { KEY_EXCHANGE } from "../tls/key-exchange.ts";
import type { TlsMaterial } from "../tls/tls-material.ts";
import type { AcceptRules, HandshakeRefusal, Protocol } from "./accept-rules.ts";
import { Acceptor } from "./acceptor.ts";
import { MAX_CLIENT_HELLO, UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { type HandshakeBudget, UNLIMITED } from "./handshake-budget.ts";
import { HandshakeBytes } from "./handshake-bytes.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import { MAX_V2_CONTENT } from "./preface.ts";
import { TLS_FLOOD, TlsOverhead } from "./tls-overhead.ts";

/** The certificate of a server name at a TLS port, and the CA by which clients are verified. */
export interface VirtualHost {
  /** Certificate, key and CA. A change of the content makes a new object. */
  readonly tls: TlsMaterial;
  /** The limit of handshakes with this host; absent: there is none. */
  readonly handshakes?: {
    budgetFor(address: string): HandshakeBudget;
    /** Records that a client from this address has shown a certificate of this host's CA. */
    proved(address: string): void;
  };
}

/** The virtual hosts of a port. */
export interface VirtualHosts<Host extends VirtualHost> {
  /** Present if all names mean this host, so that no name needs to be read. */
  readonly single: Host | undefined;
  /** Finds a host by the canonical name in the ClientHello (RFC 6066 §3), which is `undefined` if none was sent. */
  find(serverName: string | undefined): Host | undefined;
}

export interface TlsListenerOptions<Host extends VirtualHost> extends AcceptRules {
  readonly hosts: VirtualHosts<Host>;
  /** The protocols to choose from (ALPN, RFC 7301), the preferred one first; absent: HTTP/1.1, and then HTTP/2. */
  readonly protocols?: readonly string[] | undefined;
  readonly minVersion?: SecureVersion | undefined;
  /** Cipher list in OpenSSL's format; empty or absent: Node's list. */
  readonly ciphers?: string | undefined;
  /** Called after a handshake with any certificate: `verifyPeer` reads it. Both sockets have an error listener. */
  onConnection(connection: HostedConnection<Host>): void;
}

/** A connection whose virtual host is known. */
export type HostedConnection<Host> = IncomingConnection<Host> & { readonly socket: TLSSocket; readonly host: Host };

/**
 * A TCP listener for TLS that requests a client certificate, and leaves it to others to refuse one. It is a
 * `net.Server` that hands its sockets to TLS servers, one for each `TlsMaterial`, which never listen themselves.
 * Before that, connections wait for their turn, and the server name is read. So a client that asks for an unknown name
 * is shown no certificate, and no context changes during a handshake. TLS sessions are never resumed, because a resumed
 * session would skip the client certificate.
 *
 * Throws OpenSSL's error for ciphers that it does not know.
 */
export function tlsListener<Host extends VirtualHost>(options: TlsListenerOptions<Host>): Acceptor {
  return new TlsProtocol(options).acceptor;
}

interface PlainListenerOptions extends AcceptRules {
  /** Whether this address may connect at all. Connections from other addresses are closed at once. */
  admits(address: string): boolean;
  /** Called for each connection. Its socket has an error listener, and its first bytes are not yet read. */
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

const UNACCEPTED = "its network has shown too many certificates that are not accepted, and has to wait";

/** TLS as the protocol of a port. */
class TlsProtocol<Host extends VirtualHost> implements Protocol {
  readonly handshakeName = "TLS handshake";
  readonly mostBefore = MAX_CLIENT_HELLO + MAX_V2_CONTENT;
  readonly lastWord = UNRECOGNIZED_NAME_ALERT;
  readonly acceptor: Acceptor;
  readonly #options: TlsListenerOptions<Host>;
  /** One TLS server for each material in use, which never listens itself; a sentence if it cannot be made. */
  readonly #servers = new WeakMap<TlsMaterial, TlsServer | string>();
  readonly #overhead: TlsOverhead;
  readonly #handshakes: HandshakeBytes;

  constructor(options: TlsListenerOptions<Host>) {
    this.#options = options;
    createSecureContext(contextOptions(options)); // may throw
    this.#overhead = new TlsOverhead();
    this.acceptor = new Acceptor(options, this);
    const refusal = { sentence: UNACCEPTED, silently: true };
    this.#handshakes = new HandshakeBytes((connection) => this.acceptor.refuse(connection, refusal));
  }

  readsName(): boolean {
    return this.#options.hosts.single === undefined;
  }

  mayBegin(connection: IncomingConnection): boolean {
    return this.#handshakes.mayBegin(connection);
  }

  budgetFor(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal {
    const host = this.#hostOf(connection);
    if ("sentence" in host) return host;
    return host.handshakes?.budgetFor(connection.source.address) ?? UNLIMITED;
  }

  onLeft(connection: IncomingConnection): void {
    this.#handshakes.leave(connection);
  }

  onDestroyed(): void {
    this.#overhead.stop();
    this.#handshakes.stop();
  }

  /** Finds the virtual host that the client asks for, or the reason why there is none (RFC 6066 §3). */
  #hostOf({ hello }: IncomingConnection): Host | HandshakeRefusal {
    const { hosts } = this.#options;
    const name = hello?.serverName;
    const host = hello === undefined ? hosts.single : hosts.find(name);
    if (host !== undefined) return host;
    if (name === undefined) return { sentence: "it asks for no server name (SNI), and one is needed here" };
    return { sentence: `no cluster has the server name "${name}"` };
  }

  /** Begins the TLS handshake. The virtual host is found again: clusters may have changed while the client waited. */
  onTurn(connection: IncomingConnection): void {
    const host = this.#hostOf(connection);
    if ("sentence" in host) {
      this.acceptor.refuse(connection, host);
      return;
    }
    const { tls } = host;
    const server = getOrMake(this.#servers, tls, () => this.#makeServer(tls));
    if (typeof server === "string") {
      this.acceptor.refuse(connection, { sentence: server, silently: true });
      return;
    }
    connection.host = host;
    connection.verifiedBy = tls.ca;
    server.emit("connection", connection.raw);
    if (connection.state === "handshake") this.#handshakes.watch(connection);
  }

  /** Returns a sentence if OpenSSL refuses the certificate or the key, for example because the key is too short. */
  #makeServer(material: TlsMaterial): TlsServer | string {
    let server: TlsServer;
    try {
      server = tlsServerOn(createSecureContext(contextOptions(this.#options, material)), {
        ALPNCallback: ({ protocols: offered }) => chooseProtocol(offered, this.#options.protocols ?? HTTP_1_FIRST),
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
    if (connection !== undefined) this.#handshakes.leave(connection, isHarmless(socket, connection.verifiedBy));
    // The connection may have been dropped, or the listener stopped, during the last step of the handshake.
    if (connection === undefined || !this.acceptor.complete(connection, socket)) {
      socket.destroy();
      return;
    }
    const unwatch = this.#overhead.watch(connection.raw, socket, () => {
      this.#handshakes.onFlood(connection);
      this.acceptor.endFlood(connection, TLS_FLOOD);
    });
    connection.raw.once("close", unwatch);
    if (socket.authorized) connection.host?.handshakes?.proved(connection.source.address);
    this.#options.onConnection(connection as HostedConnection<Host>); // `#onTurn` has set the host
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const connection = connectionOf(socket);
    if (connection === undefined || !this.acceptor.fail(connection, error)) return;
    // Node leaves the socket open after a timeout. It is destroyed one turn later, after an alert has been written.
    setImmediate(() => connection.raw.destroy());
  };
}

/** The connection below a TLS socket whose handshake is in progress. */
function connectionOf<Host>(socket: TLSSocket): IncomingConnection<Host> | undefined {
  const raw = rawSocketOf(socket);
  return raw && IncomingConnection.of(raw);
}

type ContextSettings = Pick<TlsListenerOptions<VirtualHost>, "minVersion" | "ciphers">;

function contextOptions({ minVersion, ciphers }: ContextSettings, material?: TlsMaterial) {
  return {
    ...trustIn(material?.ca ?? ""),
    ...(material && { cert: material.cert, key: material.key }),
    minVersion: minVersion ?? "TLSv1.2",
    ...(ciphers ? { ciphers } : {}),
    ecdhCurve: KEY_EXCHANGE,
    // No TLS session is resumed: tickets are off, and `readWholeRecords` declines session ids.
    secureOptions: constants.SSL_OP_NO_TICKET,
  } as const;
}

const HTTP_1_FIRST = ["http/1.1", "h2"];

/**
 * Chooses a protocol of both. Without one an offer is chosen, because Node fails a handshake without a choice; what the
 * client speaks is seen in its first bytes anyway. HTTP/2 is not: a client that agrees on it speaks it.
 */
function chooseProtocol(offered: readonly string[], spoken: readonly string[]): string | undefined {
  return spoken.find((name) => offered.includes(name)) ?? offered.find((name) => name !== "h2");
}
