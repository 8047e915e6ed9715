import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { networkOf } from "../address/network.ts";
import { BySource } from "../basics/by-source.ts";
import { OrderedSet } from "../basics/queue.ts";
import { Penalties } from "../basics/rate-limit.ts";
import { seconds } from "../basics/text.ts";
import { answerAndEnd } from "../http/connection-end.ts";
import { type MemoryAccount, UNBOUNDED } from "../limits/memory-account.ts";
import { type FailedHandshake, HandshakeBacklog } from "./handshake-backlog.ts";
import type { HandshakeBudget } from "./handshake-queue.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import type { PacedClose } from "./paced-close.ts";
import { type Preface, PrefaceReader } from "./preface.ts";
import { TlsOverhead } from "./tls-overhead.ts";

/** Whether balancers say who is behind them (PROXY protocol, version 1 or 2). */
export interface ProxyProtocolRule {
  readonly required: boolean;
  /** Is this address one of the balancers? From others a header is refused. */
  trusts(address: string): boolean;
}

/** How much a port takes from strangers, whatever they speak. */
export interface AcceptRules {
  /** Absent: nobody stands between that would say who the client is. */
  readonly proxyProtocol?: ProxyProtocolRule | undefined;
  /** A handshake that takes longer is cut, and so is a connection that waits for one: they hold memory for a stranger. */
  readonly handshakeTimeoutMs: number;
  /**
   * Handshakes in progress at once, and connections that have not sent what stands in front of theirs. One more drops
   * the oldest of the network that holds most: real ones take milliseconds, held ones grow old.
   */
  readonly maxHandshakes: number;
  /** Clients that wait for their handshake to begin: it does so in order, a few at a time. */
  readonly maxWaitingHandshakes: number;
  /** Some of those whose turn would come too late are let in to be told so (`backInMs`). */
  readonly turnsAway: boolean;
  /**
   * While fewer connections are open, who comes alone begins unread, if `Protocol.mayBeginUnread`: Node then reads TLS in
   * buffers of 64 KiB, not of 16, and keeps them (docs/decisions/0010). For few that carry much. Absent: all are read first.
   */
  readonly mostUnread?: number | undefined;
  readonly backlog: number;
  /** Where the bytes of those that wait are counted; absent: nowhere. */
  readonly memory?: Pick<MemoryAccount, "hold" | "enter"> | undefined;
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** How connections end that are lost together; absent: each at once. */
  readonly pacedClose?: PacedClose | undefined;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** An accept has failed; the listener goes on. For want of descriptors libuv closes who comes, or lets him wait, without this. */
  onError(error: Error): void;
}

/** Why a connection gets no handshake. */
export interface HandshakeRefusal {
  readonly sentence: string;
  /** It does not even get the protocol's last word. */
  readonly silently?: boolean;
}

/** What is spoken on a port. */
export interface Protocol {
  /** What its connections wait for, for sentences. */
  readonly begins: string;
  /** Bytes that a client may send before its handshake begins, PROXY header included; absent: as many as are read at once. */
  readonly mostBefore?: number;
  /** Is the name in the ClientHello needed before it can go on? */
  readsName(): boolean;
  /** May a handshake begin before its client has sent a byte? Absent: none may. */
  mayBeginUnread?(): boolean;
  /** What a client that is refused is sent. */
  readonly lastWord: Buffer | undefined;
  /** May this address come at all? Absent: each may. */
  admits?(address: string): boolean;
  /** Whose handshake this would be, from what stands in front of it. Absent: all share one budget. */
  budgetFor?(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal;
  /** Its turn has come. `over` or `refuse` ends its time here. */
  onTurn(connection: IncomingConnection): void;
}

/** A client, or its path, has ended a connection whose handshake was in progress. */
export class CutOff extends Error {
  override readonly name = "CutOff";

  constructor(begins: string) {
    super(`the connection ended during the ${begins}`);
  }
}

/** This part of the handshakes in progress may come from one network. */
const SHARE_OF_ONE = 0.25;
/** Beyond it one begins in so long, ms. */
const BEYOND_SHARE_MS = 5;

/**
 * Accepts the connections of a port: what stands in front of their handshake is read, they wait for their turn, and
 * there are never more of them than may be. What is spoken then is its owner's.
 *
 * ```
 *  accepted ─▶ PROXY header, ClientHello ─▶ backlog ─▶ its turn ─▶ onTurn ─▶ over ─▶ handed on
 *     │ │                  └──────────────────────────────────────────┴─▶ refuse, fail
 *     │ └ alone, few are open, and nobody needs its first bytes: unread ──▶ onTurn
 *     └ admits? no: closed at once
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
  readonly #overhead = new TlsOverhead();
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
      allowHalfOpen: false, // until it is handed on: who ends before that is gone, like a balancer's health check
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

  /** It takes connections: from `listen` to the end, or to `stopAccepting`. */
  get listening(): boolean {
    return this.#net.listening;
  }

  /** Connections whose handshake is not done: it is in progress, or has not begun. */
  get handshakes(): number {
    return this.#handshakes.size + this.#backlog.size;
  }

  /** Accepted connections that are still open, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** Accepts no new connections, and ends those in their handshake. Those that were handed on stay open. */
  stopAccepting(): void {
    if (this.#net.listening) this.#net.close();
    this.#backlog.clear();
    for (const connection of this.#handshakes) {
      this.over(connection);
      connection.raw.destroy();
    }
  }

  /** The port's virtual hosts have changed: ends the handshakes that began unread, since nobody knows whom they came to. */
  endUnread(): void {
    for (const connection of this.#handshakes) {
      if (!connection.isUnread || !this.over(connection)) continue;
      connection.raw.destroy();
      this.failed(connection, new Error("what is behind this port has changed, and it had not said whom it came to"));
    }
  }

  destroyAll(): void {
    this.stopAccepting();
    this.#overhead.stop();
    // From above: Node 20 dies of a TCP socket that is destroyed beneath a TLS socket which is just saying goodbye.
    for (const { socket } of this.#open) socket.destroy();
  }

  /** Ends the state `handshake`. False: it had ended before, because the connection was dropped, failed, or was stopped. */
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
    if (socket === raw) return;
    this.#rules.pacedClose?.watch(socket);
    this.#overhead.watch(raw, socket, () => this.#endFlood(connection));
  }

  #endFlood(connection: IncomingConnection): void {
    this.#penalties.add(connection.network);
    connection.socket.destroy();
    this.#report(
      connection,
      "failed",
      new Error("it sent a flood of TLS messages without payload (KeyUpdate, padding)"),
    );
  }

  /** Ends a connection at its turn with the protocol's last word, or without one. */
  refuse(connection: IncomingConnection, refusal: HandshakeRefusal): void {
    if (this.over(connection)) this.#refuse(connection, refusal);
  }

  #refuse(connection: IncomingConnection, { sentence, silently = false }: HandshakeRefusal): void {
    const { raw } = connection;
    const { lastWord } = this.#protocol;
    if (silently || lastWord === undefined) raw.destroy();
    else answerAndEnd(raw, lastWord);
    this.#report(connection, "failed", new Error(sentence));
  }

  /** Reports a connection that came to nothing, and is over: its client went, failed, or took too long. */
  failed(connection: IncomingConnection, error: Error): void {
    this.#report(connection, connection.raw.bytesRead === 0 ? "silent" : "failed", error);
  }

  #report({ remote }: IncomingConnection, how: FailedHandshake["how"], error: Error): void {
    this.#rules.onHandshakeFailed({ how, error, remote });
  }

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    const connection = new IncomingConnection(raw);
    const { proxyProtocol } = this.#rules;
    const address = raw.remoteAddress ?? "";
    if (this.#protocol.admits?.(address) === false) {
      this.#cut(connection, "untrusted", "its address is none of those that may come here");
      return;
    }
    if (proxyProtocol?.required === true && !proxyProtocol.trusts(address)) {
      const sentence = "only the balancers may come here (PROXY protocol), and its address is none of theirs";
      this.#cut(connection, "failed", sentence);
      return;
    }
    const unread = this.#mayBeginUnread() && this.#penalties.leftMs(networkOf(address)) === 0;
    this.#open.add(connection);
    raw.on("close", () => this.#open.delete(connection));
    this.#rules.pacedClose?.watch(raw);
    if (unread) this.#begin(connection);
    else this.#backlog.add(connection);
  };

  #cut(connection: IncomingConnection, how: FailedHandshake["how"], sentence: string): void {
    connection.state = "closed";
    connection.raw.destroy();
    this.#report(connection, how, new Error(sentence));
  }

  /** Nobody is on his way in, so nobody has to wait for one that may never speak. */
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

  /** What stands in front of the handshake has come. False: it is refused, and ended. */
  #admit(connection: IncomingConnection, preface: Preface): boolean {
    const budget = this.#budgetFor(connection, preface);
    if ("take" in budget) {
      connection.budget = budget;
      return true;
    }
    connection.handOver();
    connection.state = "closed";
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
    const sentence = `its network has flooded this port, and comes too early by ${seconds(penaltyMs)}`;
    return { sentence, silently: true };
  }

  /**
   * A network whose clients do not go on with so many handshakes gets further ones slowly: each costs the first half of
   * one. Where a credential was proved, honest clients share the network, and wait for nobody but those before them.
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
      if (this.over(connection)) this.failed(connection, new CutOff(this.#protocol.begins));
    });
    if (!raw.destroyed) this.#protocol.onTurn(connection);
  }

  #dropOldest(): void {
    const connection = this.#handshakes.oldestOfFullest;
    if (connection === undefined || !this.over(connection)) return;
    connection.raw.destroy();
    const sentence = `too many ${this.#protocol.begins}s at once: the oldest was dropped`;
    this.#report(connection, "dropped", new Error(sentence));
  }
}

function ignore(): void {}
