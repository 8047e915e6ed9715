import type { MemoryAccount } from "../limits/memory-account.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";
import type { HandshakeBounds } from "./handshake-queue.ts";
import type { IncomingConnection } from "./incoming-connection.ts";
import type { PacedClose } from "./paced-close.ts";

/** The bounds of a port for clients that have not authenticated. */
export interface AcceptRules extends HandshakeBounds {
  /** Maximum time that a connection waits for its handshake, and that the handshake takes. */
  readonly handshakeTimeoutMs: number;
  /** How balancers name the client behind them (PROXY protocol, version 1 or 2). Absent: no header is read. */
  readonly proxyProtocol?:
    | {
        readonly required: boolean;
        /** Whether this address is one of the balancers. A header from any other address is refused. */
        trusts(address: string): boolean;
      }
    | undefined;
  readonly backlog: number;
  /** The memory account of the bytes that waiting connections have sent. */
  readonly memory?: Pick<MemoryAccount, "hold" | "enter"> | undefined;
  /** TCP keepalive of accepted connections; absent: off. */
  readonly keepAliveMs?: number | undefined;
  /** Spreads the release of connections that are lost together; absent: each is released at once. */
  readonly pacedClose?: PacedClose | undefined;
  onHandshakeFailed(failed: FailedHandshake): void;
  /** Called when an accept has failed. The listener stays open. libuv does not report a lack of descriptors here. */
  onError(error: Error): void;
}

/** A handshake that failed or never began. */
export interface FailedHandshake {
  /**
   * `silent`: it ended without a byte, as a probe of the port does. `dropped`: the oldest of too many handshakes in
   * progress or incomplete prefaces. `crowded`: the oldest of too many that wait. `late`: its turn did not come in
   * time. `untrusted`: its address may not connect. `flood`: its handshake was done, and it sent a flood after it.
   * `failed`: everything else.
   */
  readonly how: "silent" | "dropped" | "crowded" | "late" | "untrusted" | "flood" | "failed";
  readonly error: Error;
  readonly remote: string;
}

/** The protocol of a port. */
export interface Protocol {
  /** Names what connections wait for, in error messages. */
  readonly handshakeName: "TLS handshake" | "HTTP request";
  /** Maximum bytes before the handshake begins, with the PROXY header; absent: only `FirstBytes` limits them. */
  readonly mostBefore?: number;
  /** Whether the name in the ClientHello is needed before the handshake. */
  readsName(): boolean;
  /** The bytes that are sent to a refused client. */
  readonly lastWord: Buffer | undefined;
  /** Whether this address may connect at all; absent: every address may. */
  admits?(address: string): boolean;
  /** Whether a handshake may begin now: its network may have wasted too many bytes. Absent: always. */
  mayBegin?(connection: IncomingConnection): boolean;
  /** Finds the budget of a handshake when its preface is complete; absent: all share one without a limit. */
  budgetFor?(connection: IncomingConnection): HandshakeBudget | HandshakeRefusal;
  /** Begins the handshake, because its turn has come. It ends with `complete`, `fail` or `refuse` of the acceptor. */
  onTurn(connection: IncomingConnection): void;
  /** Called when the connection no longer waits and is not in its handshake, for any reason. */
  onLeft?(connection: IncomingConnection): void;
  /** Called when all connections of the port are destroyed. */
  onDestroyed?(): void;
}

/** The reason why a connection gets no handshake. */
export interface HandshakeRefusal {
  readonly sentence: string;
  /** Whether the connection is closed without `lastWord`. */
  readonly silently?: boolean;
}

/** The client, or something on the network, has ended a connection during its handshake. */
export class EndedInHandshake extends Error {
  override readonly name = "EndedInHandshake";

  constructor(handshakeName: string) {
    super(`the connection ended during the ${handshakeName}`);
  }
}
