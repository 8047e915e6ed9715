import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { BySource } from "../basics/by-source.ts";
import { OrderedSet } from "../basics/collections.ts";
import { Penalties } from "../basics/rate-limit.ts";
import { seconds } from "../basics/text.ts";
import { answerAndEnd } from "../http/connection.ts";
import { HeldBytes, UNBOUNDED } from "../limits/memory-account.ts";
import { setReading } from "../node/sockets.ts";
import {
  type AcceptRules,
  EndedInHandshake,
  type FailedHandshake,
  type HandshakeRefusal,
  type Protocol,
} from "./accept-rules.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";
import { HandshakeQueue } from "./handshake-queue.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import { FirstBytes, type Preface, PrefaceReader } from "./preface.ts";
import { CROWDED_OUT, UNAUTHENTICATED } from "./unauthenticated-sockets.ts";

/**
 * Accepts the connections of a port, reads what comes before their handshake, and makes them wait for their turn. Each
 * of these stages has a bound. The protocol begins at `onTurn`.
 *
 * ```
 *  accepted ─▶ preface: PROXY header, ClientHello ─▶ queue ─▶ its turn ─▶ onTurn ─▶ complete: handed on
 *     │                    └──────────────────────────┴────────────────────┴─▶ refused, failed, dropped
 *     └ the address is not admitted: closed at once
 * ```
 */
export class Acceptor {
  readonly #rules: AcceptRules;
  readonly #protocol: Protocol;
  readonly #net: Server;
  /** Connections whose preface is not complete. */
  readonly #reading = new BySource<IncomingConnection>();
  readonly #queue: HandshakeQueue<IncomingConnection>;
  /** Connections that are accepted and not closed. */
  readonly #open = new OrderedSet<IncomingConnection>();
  readonly #penalties = new Penalties();

  constructor(rules: AcceptRules, protocol: Protocol) {
    this.#rules = rules;
    this.#protocol = protocol;
    this.#queue = new HandshakeQueue(rules, {
      mayBegin: (connection) => protocol.mayBegin?.(connection) ?? true,
      begin: (connection) => this.#begin(connection),
      drop: (connection, how) => this.#dropOldest(connection, how),
    });
    const { keepAliveMs } = rules;
    this.#net = createServer({
      allowHalfOpen: false, // until `complete`: an end before that is a health check of a balancer
      noDelay: true,
      ...(keepAliveMs === undefined ? {} : { keepAlive: true, keepAliveInitialDelay: keepAliveMs }),
    });
    this.#net.on("connection", this.#onConnection);
  }

  /** Rejects with Node's error, for example EADDRINUSE. */
  async listen(port: number, host: string): Promise<AddressInfo> {
    await once(this.#net.listen({ port, host, backlog: this.#rules.backlog }), "listening");
    this.#net.on("error", (error) => this.#rules.onError(error));
    return this.#net.address() as AddressInfo;
  }

  /** Whether the port accepts connections: from `listen` to `stopAccepting`. */
  get listening(): boolean {
    return this.#net.listening;
  }

  /** The number of connections whose handshake is in progress or has not begun. */
  get handshakes(): number {
    return this.#reading.size + this.#queue.size;
  }

  /** The number of open connections, those in their handshake included. */
  get connections(): number {
    return this.#open.size;
  }

  /** Accepts no new connections, and ends those in their handshake unless they may finish; others stay open. */
  stopAccepting({ mayFinish = false } = {}): void {
    if (this.#net.listening) this.#net.close();
    if (mayFinish) return;
    for (const connection of [...this.#reading, ...this.#queue]) {
      this.#leave(connection);
      connection.raw.destroy();
    }
  }

  destroyAll(): void {
    this.stopAccepting();
    this.#protocol.onDestroyed?.();
    // The TLS socket is destroyed, not the one below: Node.js 20 crashes if that closes before the TLS socket.
    for (const { socket } of this.#open) socket.destroy();
  }

  // ── a connection, from its accept to its turn ───────────────────────────────────────────────────────────────────

  readonly #onConnection = (raw: Socket): void => {
    raw.on("error", ignore);
    const connection = new IncomingConnection(raw);
    const { proxyProtocol, pacedClose } = this.#rules;
    const address = raw.remoteAddress ?? "";
    if (this.#protocol.admits?.(address) === false) {
      this.#drop(connection, "untrusted", "its address may not connect to this port");
      return;
    }
    if (proxyProtocol?.required === true && !proxyProtocol.trusts(address)) {
      const sentence = "only balancers may connect to this port (PROXY protocol), and its address is not one of them";
      this.#drop(connection, "failed", sentence);
      return;
    }
    this.#open.add(connection);
    raw.on("close", () => this.#onClose(connection));
    connection.onCrowdedOut = () => this.#drop(connection, "crowded", CROWDED_OUT);
    UNAUTHENTICATED.add(connection);
    if (!connection.isPending) return;
    pacedClose?.watch(raw);
    this.#readPreface(connection);
  };

  #readPreface(connection: IncomingConnection): void {
    const { raw } = connection;
    const { maxHandshakes, handshakeTimeoutMs, memory = UNBOUNDED } = this.#rules;
    const { mostBefore = Number.POSITIVE_INFINITY, handshakeName } = this.#protocol;
    this.#reading.add(connection, connection.network);
    const oldest = this.#reading.size > maxHandshakes ? this.#reading.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#dropOldest(oldest, "dropped");
    if (!connection.isPending) return;
    connection.setDeadline(handshakeTimeoutMs, () => this.#onLate(connection));
    let reader: PrefaceReader | undefined;
    let preface: Preface | undefined;
    const onChunk = (chunk: Buffer): void => {
      if (preface === undefined) {
        // The names of the port may have changed while the client was silent.
        reader ??= new PrefaceReader({ proxyHeader: this.#proxyHeader(raw), name: this.#protocol.readsName() });
        preface = reader.push(chunk);
        if (preface !== undefined) {
          reader = undefined;
          this.#onPreface(connection, preface);
        }
      }
      if (firstBytes.length > mostBefore)
        this.#drop(connection, "failed", `it sent too much before its ${handshakeName} had begun`);
    };
    const held = new HeldBytes(memory, () =>
      this.#drop(connection, "crowded", `memory is short, and it waited for its ${handshakeName}`),
    );
    const firstBytes = new FirstBytes(raw, onChunk, held);
    connection.firstBytes = firstBytes;
  }

  #proxyHeader(raw: Socket): "ignored" | "forbidden" | "optional" | "required" {
    const { proxyProtocol } = this.#rules;
    if (proxyProtocol === undefined) return "ignored";
    if (!proxyProtocol.trusts(raw.remoteAddress ?? "")) return "forbidden";
    return proxyProtocol.required ? "required" : "optional";
  }

  #onPreface(connection: IncomingConnection, preface: Preface): void {
    const budget = this.#budgetFor(connection, preface);
    if (!("take" in budget)) {
      this.refuse(connection, budget);
      return;
    }
    this.#reading.delete(connection);
    connection.budget = budget;
    connection.state = "queued";
    this.#queue.enter(connection);
  }

  #budgetFor(connection: IncomingConnection, preface: Preface): HandshakeBudget | HandshakeRefusal {
    if (preface.problem !== undefined) return { sentence: preface.problem, silently: preface.beforeTls };
    connection.client = preface.source;
    if (connection.client !== undefined) {
      UNAUTHENTICATED.delete(connection);
      UNAUTHENTICATED.add(connection); // among those of the client's network, and not of the balancer's
    }
    connection.hello = preface.hello;
    connection.firstBytes?.skip(preface.headerLength);
    const budget = this.#protocol.budgetFor?.(connection) ?? connection.budget;
    const penaltyMs = this.#penalties.leftMs(connection.network);
    if (penaltyMs === 0 || !("take" in budget) || budget.provenAs !== undefined) return budget;
    const sentence = `its network has flooded this port, and may connect again in ${seconds(penaltyMs)}`;
    return { sentence, silently: true };
  }

  #begin(connection: IncomingConnection): void {
    const { raw } = connection;
    if (raw.destroyed) {
      this.#queue.leave(connection); // the client has closed the connection, and `close` of the socket will follow
      return;
    }
    connection.state = "handshake";
    connection.clearDeadline();
    connection.firstBytes?.giveBack();
    connection.firstBytes = undefined;
    this.#rules.pacedClose?.arrived(raw);
    this.#protocol.onTurn(connection);
  }

  // ── how it ends ─────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Hands the connection on after its handshake. `socket` is `raw` or the TLS socket on it. Returns false if the
   * connection was dropped before, or its handshake failed or was stopped.
   */
  complete(connection: IncomingConnection, socket: Socket): boolean {
    if (!this.#leave(connection)) return false;
    const { raw } = connection;
    connection.handedOn(socket);
    socket.allowHalfOpen = true;
    raw.allowHalfOpen = true;
    if (socket !== raw) this.#rules.pacedClose?.watch(socket);
    return true;
  }

  /** Reports that the handshake has failed. Returns false if it had ended before. */
  fail(connection: IncomingConnection, error: Error): boolean {
    if (!this.#leave(connection)) return false;
    this.#report(connection, connection.raw.bytesRead === 0 ? "silent" : "failed", error);
    return true;
  }

  /** Ends a connection before its handshake is done, with `lastWord` of the protocol or silently. */
  refuse(connection: IncomingConnection, { sentence, silently = false }: HandshakeRefusal): void {
    const { raw, firstBytes } = connection;
    const { lastWord } = this.#protocol;
    if (!this.#leave(connection)) return;
    if (silently || lastWord === undefined) raw.destroy();
    else {
      firstBytes?.giveBack(); // `answerAndEnd` reads and counts what the client has sent
      answerAndEnd(raw, lastWord);
    }
    this.#report(connection, "failed", sentence);
  }

  /** Ends a connection that sends a flood after its handshake. Its network gets a penalty. */
  endFlood(connection: IncomingConnection, sentence: string): void {
    this.#penalties.add(connection.network);
    connection.onFlood?.(sentence);
    if (connection.onFlood === undefined) connection.socket.destroy();
    else setReading(connection.raw, false); // while the peer is told; `pause` would read on where nothing is payload
    this.#report(connection, "flood", sentence);
  }

  #onClose(connection: IncomingConnection): void {
    this.#open.delete(connection);
    UNAUTHENTICATED.delete(connection);
    if (!connection.isPending) return;
    const { handshakeName } = this.#protocol;
    if (connection.state === "handshake") this.fail(connection, new EndedInHandshake(handshakeName));
    else {
      const when = connection.raw.bytesRead > 0 ? `while it waited for its ${handshakeName}` : "without a byte";
      this.fail(connection, new Error(`the connection ended ${when}`));
    }
  }

  #onLate(connection: IncomingConnection): void {
    const { state, raw, budget } = connection;
    const limit = budget.exhausted === undefined ? "" : `: ${budget.exhausted}`;
    const [how, what] =
      raw.bytesRead === 0
        ? (["silent", "it sent nothing"] as const)
        : state === "queued"
          ? (["late", `its turn did not come${limit}`] as const)
          : (["failed", "what it sent came to no end"] as const);
    this.#drop(connection, how, `${this.#protocol.handshakeName} timeout: ${what}`);
  }

  #dropOldest(connection: IncomingConnection, how: "dropped" | "crowded"): void {
    const { handshakeName } = this.#protocol;
    const many = how === "dropped" ? `${handshakeName}s at once` : `connections wait for their ${handshakeName}`;
    this.#drop(connection, how, `too many ${many}: the oldest was dropped`);
  }

  #drop(connection: IncomingConnection, how: FailedHandshake["how"], sentence: string): void {
    if (!this.#leave(connection)) return;
    connection.raw.destroy();
    this.#report(connection, how, sentence);
  }

  /** Ends the wait of a connection, or its handshake. Returns false if they had ended before. */
  #leave(connection: IncomingConnection): boolean {
    if (!connection.isPending) return false;
    connection.state = "closed"; // unless it is handed on
    connection.clearDeadline();
    connection.firstBytes?.stop();
    connection.firstBytes = undefined;
    if (!this.#reading.delete(connection)) this.#queue.leave(connection);
    this.#protocol.onLeft?.(connection);
    return true;
  }

  #report({ remote }: IncomingConnection, how: FailedHandshake["how"], why: Error | string): void {
    this.#rules.onHandshakeFailed({ how, error: typeof why === "string" ? new Error(why) : why, remote });
  }
}

function ignore(): void {}
