import { peerAction } from "../../shared/http/connection.ts";
import { CarrierLost } from "../../shared/link/link-events.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** A server that drained this agent closes its port, at the latest so long after its last link, ms. */
const SHUTDOWN_MS = 1_000;
/** A link may outlast its drain by hours: a cut so long after it, ms, need not be that server's. */
const DRAIN_CUT_MS = 60_000;

/** What an attempt may meet of a server that shuts down: its refusals, and its closed port. */
export interface ServerShutdown {
  readonly answers: boolean;
  readonly cuts: boolean;
}

/** The server says that it drains: a planned restart, after which it or another server accepts the agent. */
export function isDraining(error: unknown): error is LinkRefused {
  return error instanceof LinkRefused && error.closeCode === CloseCode.draining;
}

/**
 * The reason to log for what an attempt meets at a server that shuts down in order: nothing is wrong, and no middlebox
 * is to be suspected. `mayBeCut`: it has just drained this agent, or closed. `undefined`: it is something else.
 */
export function shutdownReason(error: unknown, mayBeCut: boolean): string | undefined {
  if (isDraining(error)) return error.reason;
  const cause = error instanceof Error ? error.cause : undefined;
  const isCut = cause instanceof CarrierLost || (cause instanceof Error && peerAction(cause) !== undefined);
  return isCut && mayBeCut ? "the server that drained this agent accepts no connections any more" : undefined;
}

/** Follows the server that drained this agent last, as long as no server has accepted the agent again. */
export class DrainedBy<C> {
  #connection: C | undefined;
  #drainedAtMs = 0;
  #closedAtMs = Number.NEGATIVE_INFINITY;

  get connection(): C | undefined {
    return this.#connection;
  }

  drained(connection: C): void {
    this.#connection = connection;
    this.#drainedAtMs = performance.now();
  }

  /** A server has accepted the agent. */
  accepted(): void {
    this.#connection = undefined;
  }

  /** The server has closed the connection, and soon closes its port. */
  closed(): void {
    this.#connection = undefined;
    this.#closedAtMs = performance.now();
  }

  /** What an attempt that begins or fails now may meet. */
  expect(): ServerShutdown {
    const now = performance.now();
    const hasClosed = now - this.#closedAtMs < SHUTDOWN_MS;
    if (this.#connection === undefined) return { answers: hasClosed, cuts: hasClosed };
    return { answers: true, cuts: hasClosed || now - this.#drainedAtMs < DRAIN_CUT_MS };
  }
}
