import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { networkOf } from "../address/network.ts";
import { BySource } from "../basics/by-source.ts";
import { OrderedSet } from "../basics/collections.ts";
import { Penalties } from "../basics/rate-limit.ts";
import { seconds } from "../basics/text.ts";
import { answerAndEnd } from "../http/connection.ts";
import { type MemoryAccount, UNBOUNDED } from "../limits/memory-account.ts";
import { type FailedHandshake, HandshakeBacklog } from "./handshake-backlog.ts";
import type { HandshakeBudget } from "./handshake-queue.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import type { PacedClose } from "./paced-close.ts";
import { type Preface, PrefaceReader } from "./preface.ts";

/** Whether balancers name the client behind them (PROXY protocol, version 1 or 2). */
export interface ProxyProtocolRule {
  readonly required: boolean;
  /** Whether this address is one of the balancers. A header from any other address is refused. */
  trusts(address: string): boolean;
}

/** The bounds of a port for clients that have not authenticated. */
export interface AcceptRules {
  /** Absent: no balancer names the client, and no header is read. */
  readonly proxyProtocol?: ProxyProtocolRule | undefined;
  /** Maximum time that a connection waits for its handshake, and that the handshake takes. */
  readonly handshakeTimeoutMs: number;
  /**
   * Maximum number of handshakes in progress, and of connections whose preface is not complete. One more drops the
   * oldest of the network that has most: real ones take milliseconds, and only those that are held open grow old.
   */
  readonly maxHandshakes: number;
  /** Maximum number of clients that wait for their handshake. */
  readonly maxWaitingHandshakes: number;
  /** Some of the clients that would wait too long are admitted and told when to come back (`backInMs`). */
  readonly turnsAway: boolean;
  /**
   * While fewer connections are open, a handshake may begin before any byte is read, if `Protocol.mayBeginUnread`. Node
   * then reads TLS in buffers of 64 KiB, not of 16, and keeps them (docs/decisions/0010). Absent: all are read first.
   */
  readonly mostUnread?: number | undefined;
  readonly backlog: number;
  /** The account in which the bytes of waiting connections are counted. */
  readonly memory?: Pick<MemoryAccount, "hold" | "enter"> | undefined;
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** Spreads the release of connections that are lost together; absent: each is released at once. */
  readonly pacedClose?: PacedClose | undefined;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** An accept has failed; the listener goes on. libuv does not report a lack of descriptors here. */
  onError(error: Error): void;
}

/** Why a connection gets no handshake. */
export interface HandshakeRefusal {
  readonly sentence: string;
  /** Close without the protocol's last word. */
  readonly silently?: boolean;
}

/** The protocol of a port. */
export interface Protocol {
  /** What connections wait for, in sentences. */
  readonly begins: string;
  /** Maximum bytes before the handshake begins, PROXY header included; absent: no limit but the one of reading. */
  readonly mostBefore?: number;
  /** Whether the name in the ClientHello is needed before the handshake. */
  readsName(): boolean;
  /** Whether a handshake may begin before its client has sent a byte; absent: no. */
  mayBeginUnread?(): boolean;
  /** The bytes that are sent to a refused client. */
  readonly lastWord: Buffer | undefined;
  /** Whether this address may connect at all; absent: each may. */
  admits?(address: string): boolean;
  /** The budget of this handshake, once the preface has come. Absent: all share one. */
  budgetFor?(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal;
  /** The connection's turn has come. It ends with `over` or `refuse`. */
  onTurn(connection: IncomingConnection): void;
  /** All connections of the port are being destroyed. */
  onDestroyed?(): void;
}

/** The client, or the network between, has ended a connection during its handshake. */
export class EndedInHandshake extends Error {
  override readonly name = "EndedInHandshake";

  constructor(begins: string) {
    super(`the connection ended during the ${begins}`);
  }
}

/** The share of the handshakes in progress that one network may have. */
const SHARE_OF_ONE = 0.25;
/** Beyond its share, one handshake of a network begins in so many ms. */
const BEYOND_SHARE_MS = 5;

/**
 * Accepts the connections of a port, reads what stands before their handshake, and lets them wait for their turn, each
 * with a bound. The protocol begins at `onTurn`.
 *
 * ```
 *  accepted ─▶ preface: PROXY header, ClientHello ─▶ backlog ─▶ its turn ─▶ onTurn ─▶ over ─▶ handed on
 *     │ │                                └───────────────────────────────────┴─▶ refused, failed
 *     │ └ few connections are open, and the preface is not needed: unread ──────▶ onTurn
 *     └ the address is not admitted: closed at once
 * ```
 */
export class Acceptor {
  readonly #rules: AcceptRules;
  readonly #protocol: Protocol;
  readonly #net: Server;
  readonly #backlog: HandshakeBacklog;
  /** Handshakes in progress, in the order in which they began. */
  readonly #handshakes = new BySource<IncomingConnection>();
  /** Accepted and not closed. */
  readonly #open = new OrderedSet<IncomingConnection>();
  readonly #penalties = new Penalties();
  /** When a handshake last began for a network that had its share in progress. */
  #beyondShareAt = 0;

  constructor(rules: AcceptRules, protocol: Protocol) {
    this.#rules = rules;
    this.#protocol = protocol;
    this.#backlog = new HandshakeBacklog({
      awaited: protocol.begins,
      maxWaiting: rules.maxWaitingHandshakes,
      deadlineMs: rules.handshakeTimeoutMs,
      maxBegun: rules.maxHandshakes,
      mostBytes: protocol.mostBefore ?? Number.POSITIVE_INFINITY,
      memory: rules.memory ?? UNBOUNDED,
      turnsAway: rules.turnsAway,
      readerFor: ({ raw }) => new PrefaceReader({ proxyHeader: this.#proxyHeader(raw), name: protocol.readsName() }),
      admit: (connection, preface) => this.#admit(connection, preface),
      mayBegin: (connection) => this.#mayBegin(connection),
      begin: (connection) => this.#begin(connection),
      onFailed: (failed) => rules.onHandshakeFailed(failed),
    });
    const { keepAliveMs } = rules;
    this.#net = createServer({
      allowHalfOpen: false, // until it is handed on: an end before that is a balancer's health check
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
      server.listen({ port, host, backlog: this.#rules.backlog }, () => {
        server.off("error", reject);
        server.on("error", (error) => this.#rules.onError(error));
        resolve(server.address() as AddressInfo);
      });
    });
  }

  /** Whether it accepts connections: from `listen` to `stopAccepting`. */
  get listening(): boolean {
    return this.#net.listening;
  }

  /** The number of connections whose handshake is in progress or has not begun. */
  get handshakes(): number {
    return this.#handshakes.size + this.#backlog.size;
  }

  /** The number of open connections, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** Accepts no new connections, and ends those in their handshake unless they may finish; others stay open. */
  stopAccepting({ mayFinish = false } = {}): void {
    if (this.#net.listening) this.#net.close();
    if (mayFinish) return;
    this.#backlog.clear();
    for (const connection of this.#handshakes) {
      this.over(connection);
      connection.raw.destroy();
    }
  }

  /** The virtual hosts have changed: ends the handshakes that began unread, whose client has not named its host. */
  endUnread(): void {
    for (const connection of this.#handshakes) {
      if (!connection.isUnread || !this.over(connection)) continue;
      connection.raw.destroy();
      this.failed(connection, new Error("the clusters of this port changed before it had sent a server name"));
    }
  }

  destroyAll(): void {
    this.stopAccepting();
    this.#protocol.onDestroyed?.();
    // The TLS socket, not the one beneath it: Node.js 20 crashes if that one goes while the TLS socket is closing.
    for (const { socket } of this.#open) socket.destroy();
  }

  /** Ends the state `handshake`. False: it had ended before; the connection was dropped, failed, or was stopped. */
  over(connection: IncomingConnection): boolean {
    if (connection.state !== "handshake") return false;
    connection.state = "closed"; // unless it is handed on
    this.#handshakes.delete(connection);
    if (!connection.isUnread) this.#backlog.done(connection);
    return true;
  }

  /** Hands the connection on: `socket` is `raw` itself, or the TLS socket that was made on it. */
  handOn(connection: IncomingConnection, socket: Socket): void {
    const { raw } = connection;
    connection.handedOn(socket);
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    if (socket !== raw) this.#rules.pacedClose?.watch(socket);
  }

  /** Ends a connection that was handed on and sends a flood. Its network may not connect for a while. */
  endFlood(connection: IncomingConnection, sentence: string): void {
    this.#penalties.add(connection.network);
    connection.socket.destroy();
    this.#report(connection, "failed", sentence);
  }

  /** Ends a connection at its turn with the protocol's last word, or without one. */
  refuse(connection: IncomingConnection, refusal: HandshakeRefusal): void {
    if (this.over(connection)) this.#refuse(connection, refusal);
  }

  #refuse(connection: IncomingConnection, { sentence, silently = false }: HandshakeRefusal): void {
    const { raw } = connection;
    const { lastWord } = this.#protocol;
    connection.state = "closed";
    if (silently || lastWord === undefined) raw.destroy();
    else answerAndEnd(raw, lastWord);
    this.#report(connection, "failed", sentence);
  }

  /** Reports a handshake that is over and has failed. */
  failed(connection: IncomingConnection, error: Error): void {
    this.#report(connection, connection.raw.bytesRead === 0 ? "silent" : "failed", error);
  }

  #report({ remote }: IncomingConnection, how: FailedHandshake["how"], why: Error | string): void {
    this.#rules.onHandshakeFailed({ how, error: typeof why === "string" ? new Error(why) : why, remote });
  }

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    const connection = new IncomingConnection(raw);
    const { proxyProtocol } = this.#rules;
    const address = raw.remoteAddress ?? "";
    if (this.#protocol.admits?.(address) === false) {
      this.#close(connection, "untrusted", "its address may not connect to this port");
      return;
    }
    if (proxyProtocol?.required === true && !proxyProtocol.trusts(address)) {
      const sentence = "only balancers may connect to this port (PROXY protocol), and its address is not one of them";
      this.#close(connection, "failed", sentence);
      return;
    }
    const unread = this.#mayBeginUnread() && this.#penalties.leftMs(networkOf(address)) === 0;
    this.#open.add(connection);
    raw.on("close", () => this.#open.delete(connection));
    this.#rules.pacedClose?.watch(raw);
    if (unread) this.#begin(connection);
    else this.#backlog.add(connection);
  };

  #close(connection: IncomingConnection, how: FailedHandshake["how"], sentence: string): void {
    connection.state = "closed";
    connection.raw.destroy();
    this.#report(connection, how, sentence);
  }

  /** Only while no other handshake waits: nothing is to wait for a client that may never send a byte. */
  #mayBeginUnread(): boolean {
    const { mostUnread = 0, proxyProtocol } = this.#rules;
    if (this.handshakes > 0 || this.#open.size >= mostUnread || proxyProtocol !== undefined) return false;
    return !this.#protocol.readsName() && this.#protocol.mayBeginUnread?.() === true;
  }

  #proxyHeader(raw: Socket): "ignored" | "forbidden" | "optional" | "required" {
    const { proxyProtocol } = this.#rules;
    if (proxyProtocol === undefined) return "ignored";
    if (!proxyProtocol.trusts(raw.remoteAddress ?? "")) return "forbidden";
    return proxyProtocol.required ? "required" : "optional";
  }

  /** The preface has come. False: the connection is refused, and closed. */
  #admit(connection: IncomingConnection, preface: Preface): boolean {
    const budget = this.#budgetFor(connection, preface);
    if ("take" in budget) {
      connection.budget = budget;
      return true;
    }
    connection.handOver();
    this.#refuse(connection, budget);
    return false;
  }

  #budgetFor(connection: IncomingConnection, preface: Preface): HandshakeBudget | HandshakeRefusal {
    if (preface.problem !== undefined) return { sentence: preface.problem, silently: preface.beforeTls };
    connection.client = preface.source;
    connection.hello = preface.hello;
    const budget = this.#protocol.budgetFor?.(connection) ?? connection.budget;
    const penaltyMs = this.#penalties.leftMs(connection.network);
    if (penaltyMs === 0 || !("take" in budget) || budget.isProven === true) return budget;
    const sentence = `its network has flooded this port, and may connect again in ${seconds(penaltyMs)}`;
    return { sentence, silently: true };
  }

  /**
   * Further handshakes of a network that has its share in progress begin slowly: each costs the first half of one.
   * Where a credential was proved, honest clients share the network, and wait only for those before them.
   */
  #mayBegin({ network, budget }: IncomingConnection): boolean {
    if (budget.isProven === true) return true;
    const share = Math.ceil(this.#rules.maxHandshakes * SHARE_OF_ONE);
    if (this.#handshakes.sizeOf(network) < share) return true;
    const now = performance.now();
    if (now - this.#beyondShareAt < BEYOND_SHARE_MS) return false;
    this.#beyondShareAt = now;
    return true;
  }

  #begin(connection: IncomingConnection): void {
    const { raw } = connection;
    connection.state = "handshake";
    this.#handshakes.add(connection, connection.network);
    if (this.#handshakes.size > this.#rules.maxHandshakes) this.#dropOldest();
    this.#rules.pacedClose?.arrived(raw);
    raw.on("close", () => {
      if (this.over(connection)) this.failed(connection, new EndedInHandshake(this.#protocol.begins));
    });
    if (!raw.destroyed) this.#protocol.onTurn(connection);
  }

  #dropOldest(): void {
    const connection = this.#handshakes.oldestOfFullest;
    if (connection === undefined || !this.over(connection)) return;
    this.#close(connection, "dropped", `too many ${this.#protocol.begins}s at once: the oldest was dropped`);
  }
}

function ignore(): void {}
