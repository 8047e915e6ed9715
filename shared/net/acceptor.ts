import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { Crowd } from "../queue.ts";
import type { Arrival } from "./arrival.ts";
import type { Departures } from "./departures.ts";
import { readFirst } from "./first-bytes.ts";
import { type FirstWords, FirstWordsReader, type FoundHello } from "./first-words.ts";
import type { Endpoint } from "./proxy-protocol.ts";
import { formatEndpoint, remoteOf } from "./source.ts";
import { type FailedHandshake, WaitingRoom } from "./waiting-room.ts";

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
   * Handshakes in progress at once, and connections that have said nothing. One more drops the oldest: real ones take
   * milliseconds, held ones grow old.
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
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** How connections end that are lost together; absent: each at once. */
  readonly departures?: Departures | undefined;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** An accept has failed; the listener goes on. For want of descriptors libuv closes who comes, or lets him wait, without this. */
  onError(error: Error): void;
}

/** What is spoken on a port. */
export interface Protocol {
  /** What its connections wait for, for sentences. */
  readonly begins: string;
  /** Is the name in the ClientHello needed before it can go on? */
  readsName(): boolean;
  /** May one begin that has said nothing yet, and perhaps never will? Absent: none may. */
  mayBeginUnread?(): boolean;
  /** What whoever is refused hears, once it has come to its turn. */
  readonly lastWord: Buffer | undefined;
  /** May this address come at all? Absent: each may. */
  admits?(address: string): boolean;
  /** Its turn has come, and what stands in front has been read. `over` or `refuse` ends the visit. */
  onTurn(visit: Visit, words: { readonly hello: FoundHello | undefined }): void;
}

/** A connection from its turn to the end of its handshake. */
export interface Visit {
  readonly raw: Socket;
  /** For the log: a socket that was cut no longer knows it. */
  readonly remote: string;
  /** As it waited; absent for one that began unread. */
  readonly arrival: Arrival | undefined;
  /** Who is behind the balancer, if there is one that says so. */
  source: Endpoint | undefined;
  /** What to tell the client in place of letting it in. */
  readonly backInMs: number | undefined;
}

/** A client, or its path, has ended a connection whose handshake was in progress. */
export class CutOff extends Error {
  override readonly name = "CutOff";

  constructor(begins: string) {
    super(`the connection ended during the ${begins}`);
  }
}

/** How long a client that was refused may take to read why, ms. */
const LINGER_MS = 1_000;

/**
 * Accepts the connections of a port: they wait for their turn, what a balancer says in front of them is read, and there are
 * never more of them than may be. What is spoken then is its owner's.
 *
 * ```
 *  accepted ─▶ waiting room ─▶ its turn ─▶ PROXY header, name ─▶ onTurn ─▶ over ─▶ handed on
 *     │ │                           └──────────────┴────────────────┴─▶ refuse, fail
 *     │ └ alone, few are open, nobody needs its first bytes: unread ───▶ onTurn
 *     └ admits? no: closed at once
 * ```
 */
export class Acceptor {
  readonly #rules: AcceptRules;
  readonly #protocol: Protocol;
  readonly #net: Server;
  readonly #room: WaitingRoom;
  /** Those in progress, in the order in which they began. */
  readonly #visits = new Crowd<Visit>();
  readonly #visitOf = new WeakMap<Socket, Visit>();
  /** Accepted and not closed. */
  readonly #open = new Crowd<Socket>();
  /** The socket on top of one that was handed on. */
  readonly #onTop = new WeakMap<Socket, Socket>();

  constructor(rules: AcceptRules, protocol: Protocol) {
    this.#rules = rules;
    this.#protocol = protocol;
    this.#room = new WaitingRoom({
      awaited: protocol.begins,
      maxWaiting: rules.maxWaitingHandshakes,
      deadlineMs: rules.handshakeTimeoutMs,
      maxBegun: rules.maxHandshakes,
      turnsAway: rules.turnsAway,
      begin: (arrival, backInMs) =>
        this.#begin({ raw: arrival.raw, remote: arrival.remote, arrival, backInMs, source: undefined }),
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
    return this.#visits.size + this.#room.size;
  }

  /** Accepted connections that are still open, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** No new connections, and none that is still in its handshake. Those that were handed on live on. */
  stopAccepting(): void {
    if (this.#net.listening) this.#net.close();
    this.#room.clear();
    for (const { raw } of this.#visits) {
      this.over(raw);
      raw.destroy();
    }
  }

  /** Who is to hear what comes next, and how, is another question now: ends the one that began unread, if it is in its handshake. */
  endUnread(): void {
    for (const visit of this.#visits) {
      if (visit.arrival !== undefined || this.over(visit.raw) === undefined) continue;
      visit.raw.destroy();
      this.failed(visit, new Error("what is behind this port has changed, and it had not said whom it came to"));
    }
  }

  destroyAll(): void {
    this.stopAccepting();
    // From above: Node 20 dies of a TCP socket that is destroyed beneath a TLS socket which is just saying goodbye.
    for (const raw of this.#open) (this.#onTop.get(raw) ?? raw).destroy();
  }

  /**
   * The handshake of this one is over, well or not. Undefined for one that was over already: dropped, failed, or ended
   * with the listener.
   */
  over(raw: Socket | undefined): Visit | undefined {
    const visit = raw && this.#visitOf.get(raw);
    if (visit === undefined) return undefined;
    this.#visits.delete(visit);
    this.#visitOf.delete(visit.raw);
    if (visit.arrival !== undefined) this.#room.done(visit.arrival);
    return visit;
  }

  /** From now on `socket` is the connection: itself, or what was made on top of it. */
  handOn(raw: Socket, socket: Socket): void {
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    if (socket === raw) return;
    this.#onTop.set(raw, socket);
    this.#rules.departures?.watch(socket);
  }

  /** Ends a visit with the protocol's last word, or without one. */
  refuse(visit: Visit, sentence: string, silently = false): void {
    const { raw } = visit;
    if (this.over(raw) === undefined) return;
    const { lastWord } = this.#protocol;
    if (silently || lastWord === undefined) raw.end();
    else raw.end(lastWord);
    raw.resume(); // what else it says is not read, but its end is
    setTimeout(() => raw.destroy(), LINGER_MS).unref();
    this.#report(visit, "failed", new Error(sentence));
  }

  /** Reports a visit that came to nothing, and is over: its client went, failed, or took too long. */
  failed(visit: Visit, error: Error): void {
    this.#report(visit, visit.raw.bytesRead === 0 ? "silent" : "failed", error);
  }

  #report({ remote, source }: Visit, how: FailedHandshake["how"], error: Error): void {
    this.#rules.onHandshakeFailed({ how, error, remote: source === undefined ? remote : formatEndpoint(source) });
  }

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    const remote = remoteOf(raw);
    if (this.#protocol.admits?.(raw.remoteAddress ?? "") === false) {
      raw.destroy();
      const error = new Error("its address is none of those that may come here");
      this.#rules.onHandshakeFailed({ how: "untrusted", error, remote });
      return;
    }
    const unread = this.#mayBeginUnread();
    this.#open.add(raw);
    raw.on("close", () => {
      this.#open.delete(raw);
      this.#onTop.delete(raw);
    });
    this.#rules.departures?.watch(raw);
    if (unread) this.#begin({ raw, remote, arrival: undefined, backInMs: undefined, source: undefined });
    else this.#room.add(raw, remote);
  };

  /** Nobody is on his way in, so nobody has to wait for one that may never speak. */
  #mayBeginUnread(): boolean {
    const { mostUnread = 0, proxyProtocol } = this.#rules;
    if (this.handshakes > 0 || this.#open.size >= mostUnread || proxyProtocol !== undefined) return false;
    return !this.#protocol.readsName() && this.#protocol.mayBeginUnread?.() === true;
  }

  #begin(visit: Visit): void {
    const { raw } = visit;
    if (this.#visits.size >= this.#rules.maxHandshakes) this.#dropOldest();
    this.#visits.add(visit);
    this.#visitOf.set(raw, visit);
    this.#rules.departures?.arrived(raw);
    raw.on("close", () => {
      if (this.over(raw)) this.failed(visit, new CutOff(this.#protocol.begins));
    });
    const name = this.#protocol.readsName();
    if (!name && this.#rules.proxyProtocol === undefined) this.#protocol.onTurn(visit, { hello: undefined });
    else this.#listenTo(visit, name);
  }

  #listenTo(visit: Visit, name: boolean): void {
    const { raw } = visit;
    const { proxyProtocol } = this.#rules;
    if (proxyProtocol?.required === true && !proxyProtocol.trusts(raw.remoteAddress ?? "")) {
      this.refuse(visit, "only the balancers may come here (PROXY protocol), and its address is none of theirs", true);
      return;
    }
    const reader = new FirstWordsReader({ proxyHeader: this.#proxyHeader(raw), name });
    readFirst<FirstWords>(raw, {
      reader: (chunk) => reader.push(chunk),
      timeoutMs: this.#rules.handshakeTimeoutMs,
      onFound: (words) => this.#onWords(visit, words),
      onLate: () => this.refuse(visit, `the ${name ? "ClientHello" : "PROXY header"} did not come to its end`),
    });
  }

  #proxyHeader(raw: Socket): "ignored" | "forbidden" | "optional" | "required" {
    const { proxyProtocol } = this.#rules;
    if (proxyProtocol === undefined) return "ignored";
    if (!proxyProtocol.trusts(raw.remoteAddress ?? "")) return "forbidden";
    return proxyProtocol.required ? "required" : "optional";
  }

  #onWords(visit: Visit, words: FirstWords): void {
    if (words.problem !== undefined) {
      this.refuse(visit, words.problem, words.beforeTls);
      return;
    }
    visit.source = words.source;
    this.#protocol.onTurn(visit, words);
  }

  #dropOldest(): void {
    const visit = this.over(this.#visits.first?.raw);
    if (visit === undefined) return;
    visit.raw.destroy();
    this.#report(visit, "dropped", new Error(`too many ${this.#protocol.begins}s at once: the oldest was dropped`));
  }
}

function ignore(): void {}
