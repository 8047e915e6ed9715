import type { MemoryAccount } from "../limits/memory-account.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";
import type { HandshakeBounds } from "./handshake-queue.ts";
import type { IncomingConnection } from "./incoming-connection.ts";
import type { PacedClose } from "./paced-close.ts";

/** The bounds of a port for clients that have not authenticated. */
export interface AcceptRules extends HandshakeBounds {
  /** Balancers name the client behind them (PROXY protocol, version 1 or 2). Absent: no header is read. */
  readonly proxyProtocol?:
    | {
        readonly required: boolean;
        /** Whether this address is one of the balancers. A header from any other address is refused. */
        trusts(address: string): boolean;
      }
    | undefined;
  /**
   * While fewer connections are open, a handshake may begin before its preface is read, if `Protocol.maySkipPreface`.
   * Node then reads TLS in buffers of 64 KiB, not of 16, and keeps them (docs/decisions/0010). Absent: never.
   */
  readonly skipPrefaceBelow?: number | undefined;
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

/** A handshake that failed or never began. */
export interface FailedHandshake {
  /**
   * `silent`: it ended without a byte, as a probe of the port does. `dropped`: the oldest of too many handshakes in
   * progress or incomplete prefaces. `crowded`: the oldest of too many that wait. `late`: its turn did not come in
   * time. `untrusted`: its address may not connect. `failed`: everything else.
   */
  readonly how: "silent" | "dropped" | "crowded" | "late" | "untrusted" | "failed";
  readonly error: Error;
  readonly remote: string;
}

/** The protocol of a port. */
export interface Protocol {
  /** What connections wait for, in sentences. */
  readonly handshakeName: "TLS handshake" | "HTTP request";
  /** Maximum bytes before the handshake begins, PROXY header included; absent: no limit but the one of reading. */
  readonly mostBefore?: number;
  /** Whether the name in the ClientHello is needed before the handshake. */
  readsName(): boolean;
  /** Whether a handshake may begin before its client has sent a byte; absent: no. */
  maySkipPreface?(): boolean;
  /** The bytes that are sent to a refused client. */
  readonly lastWord: Buffer | undefined;
  /** Whether this address may connect at all; absent: each may. */
  admits?(address: string): boolean;
  /** Whether a handshake may begin now, for what its network has done in others; absent: yes. */
  mayBegin?(connection: IncomingConnection): boolean;
  /** The budget of this handshake, once the preface has come. Absent: all share one. */
  budgetFor?(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal;
  /** The connection's turn has come. It ends with `complete`, `fail` or `refuse` of the acceptor. */
  onTurn(connection: IncomingConnection): void;
  /** The wait of the connection, or its handshake, is over, however it ended. */
  onLeft?(connection: IncomingConnection): void;
  /** All connections of the port are being destroyed. */
  onDestroyed?(): void;
}

/** Why a connection gets no handshake. */
export interface HandshakeRefusal {
  readonly sentence: string;
  /** Close without the protocol's last word. */
  readonly silently?: boolean;
}

/** The client, or the network between, has ended a connection during its handshake. */
export class EndedInHandshake extends Error {
  override readonly name = "EndedInHandshake";

  constructor(handshakeName: string) {
    super(`the connection ended during the ${handshakeName}`);
  }
}
