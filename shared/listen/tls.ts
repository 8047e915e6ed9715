import { constants } from "node:crypto";
import type { AddressInfo } from "node:net";
import {
  createSecureContext,
  createServer as createTlsServer,
  type SecureVersion,
  type TLSSocket,
  type Server as TlsServer,
} from "node:tls";
import { rawSocketOf } from "../relay/reset.ts";
import type { TlsMaterial } from "../tls/tls-material.ts";
import { Acceptor, type AcceptRules, type Refusal } from "./acceptor.ts";
import { MAX_CLIENT_HELLO, UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { type HandshakeBudget, UNLIMITED } from "./handshake-queue.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import { MAX_V2_CONTENT } from "./proxy-protocol.ts";

/** One of the names behind a port: what it shows, and whose certificates it knows. */
export interface VirtualHost {
  /** Another object whenever the content is another. */
  readonly tls: TlsMaterial;
  /** How many handshakes may begin for clients from this address. Absent: any number. */
  handshakeBudget?(address: string): HandshakeBudget;
  /** A client from this address has shown a certificate of this door's CA. */
  proved?(address: string): void;
  /** There is a limit: no handshake may begin for a client that has said nothing. */
  readonly limitsHandshakes?: boolean;
}

/** Which door a client came to. */
export interface VirtualHosts<Door extends VirtualHost> {
  /** All names lead to one door: nobody needs to read them. */
  readonly single: Door | undefined;
  /** By the canonical name in the ClientHello (RFC 6066 §3); `undefined` is one that names nobody. */
  find(serverName: string | undefined): Door | undefined;
}

export interface TlsListenerOptions<Door extends VirtualHost> extends AcceptRules {
  readonly doors: VirtualHosts<Door>;
  readonly minVersion?: SecureVersion | undefined;
  /** OpenSSL's list; empty or absent: Node's. */
  readonly ciphers?: string | undefined;
  /** The handshake is done, whatever the certificate: `verifyPeer` decides. Both sockets have an error listener. */
  onSecure(socket: TLSSocket, door: Door, backInMs: number | undefined): void;
}

/**
 * A TCP listener that speaks TLS and asks for a client certificate, without judging it (design: "The caller's side",
 * 5). It is a `net.Server` that hands its sockets to TLS servers, one for each door, which themselves never listen: who
 * waits for a handshake waits between, and a name is read there. So a name that is nobody's never meets a certificate, and
 * no context is ever changed under a handshake. Sessions are never resumed: a resumed one would skip the certificate.
 */
export class TlsListener<Door extends VirtualHost = VirtualHost> {
  readonly #options: TlsListenerOptions<Door>;
  readonly #acceptor: Acceptor;
  /** One for each material that has been asked for. */
  readonly #servers = new WeakMap<TlsMaterial, TlsServer | string>();

  /** Throws OpenSSL's error for ciphers that it does not know. */
  constructor(options: TlsListenerOptions<Door>) {
    this.#options = options;
    createSecureContext(contextOptions(options));
    this.#acceptor = new Acceptor(options, {
      begins: "TLS handshake",
      mostBefore: MAX_CLIENT_HELLO + MAX_V2_CONTENT,
      readsName: () => options.doors.single === undefined,
      mayBeginUnread: () => options.doors.single?.limitsHandshakes !== true,
      lastWord: UNRECOGNIZED_NAME_ALERT,
      budgetFor: (connection) => {
        const door = this.#doorFor(connection);
        if ("sentence" in door) return door;
        return door.handshakeBudget?.(connection.source.address) ?? UNLIMITED;
      },
      onTurn: (connection) => this.#onTurn(connection),
    });
  }

  /** Rejects with Node's error, for example EADDRINUSE. */
  listen(port: number, host: string): Promise<AddressInfo> {
    return this.#acceptor.listen(port, host);
  }

  get listening(): boolean {
    return this.#acceptor.listening;
  }

  /** Connections whose handshake is not done: it is in progress, or has not begun. */
  get handshakes(): number {
    return this.#acceptor.handshakes;
  }

  /** Accepted connections that are still open, those in their handshake included. */
  get connections(): number {
    return this.#acceptor.connections;
  }

  /** No new connections, and none that is still in its handshake. Those that were handed over live on. */
  stopAccepting(): void {
    this.#acceptor.stopAccepting();
  }

  /** The doors have changed: one that came to the only door, and has not said to which, must not meet its certificate. */
  endUnread(): void {
    this.#acceptor.endUnread();
  }

  destroyAll(): void {
    this.#acceptor.destroyAll();
  }

  /** Nobody is shown a certificate who has not asked for the right name (RFC 6066 §3: unrecognized_name). */
  #doorFor({ hello }: IncomingConnection): Door | Refusal {
    const { doors } = this.#options;
    const name = hello?.serverName;
    const door = hello === undefined ? doors.single : doors.find(name);
    if (door !== undefined) return door;
    if (name === undefined) return { sentence: "it asks for no server name (SNI), and one is needed here" };
    return { sentence: `no cluster has the server name "${name}"` };
  }

  /** The door is looked up again, since clusters may have changed while the client waited. */
  #onTurn(connection: IncomingConnection): void {
    const door = this.#doorFor(connection);
    if ("sentence" in door) {
      this.#acceptor.refuse(connection, door);
      return;
    }
    const server = this.#serverOf(door.tls);
    if (typeof server === "string") {
      this.#acceptor.refuse(connection, { sentence: server, silently: true });
      return;
    }
    connection.host = door;
    connection.verifiedBy = door.tls.ca;
    server.emit("connection", connection.raw);
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
        ALPNCallback: chooseProtocol,
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

  readonly #onSecure = (socket: TLSSocket): void => {
    socket.on("error", ignore);
    const connection = connectionOf<Door>(socket);
    // It is over already if it was dropped, or the listener was stopped, during the last step of the handshake.
    if (connection === undefined || !this.#acceptor.over(connection) || connection.host === undefined) {
      socket.destroy();
      return;
    }
    this.#acceptor.handOn(connection, socket);
    if (socket.authorized) connection.host.proved?.(connection.source.address);
    this.#options.onSecure(socket, connection.host, connection.backInMs);
  };

  readonly #onTlsError = (error: Error, socket: TLSSocket): void => {
    const connection = connectionOf(socket);
    if (connection === undefined || !this.#acceptor.over(connection)) return;
    const { raw } = connection;
    // Node leaves the socket open after a timeout. One turn later, because an alert may still be on its way out.
    setImmediate(() => raw.destroy());
    this.#acceptor.failed(connection, error);
  };
}

/** The connection beneath a TLS socket in its handshake. */
function connectionOf<Door>(socket: TLSSocket): IncomingConnection<Door> | undefined {
  const raw = rawSocketOf(socket);
  return raw && IncomingConnection.of(raw);
}

type ContextSettings = Pick<TlsListenerOptions<VirtualHost>, "minVersion" | "ciphers">;

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
 * HTTP/1.1 if the client offers it. A gRPC client offers HTTP/2 alone, and gets it so that a sentence can answer its
 * first bytes. Otherwise the first protocol offered: Node's callback must choose one or fail the handshake.
 */
function chooseProtocol({ protocols }: { readonly protocols: readonly string[] }): string | undefined {
  return ["http/1.1", "h2"].find((name) => protocols.includes(name)) ?? protocols[0];
}

/**
 * What it is for is its presence: Node then reads into buffers of 16 KiB. Else the first bytes given back by `unshift`, a
 * ClientHello, make the first buffer of the ring as small as 1 KiB, and every second read from then on is of 1 KiB: a
 * fifth more of the server's time in downloads (docs/decisions/0010). Who began unread has 64 KiB either way.
 */
function neverResumed(_sessionId: Buffer, answer: (error: null, session: null) => void): void {
  answer(null, null);
}

function ignore(): void {}
