import { peerAction } from "../../shared/http/connection-end.ts";
import { CarrierLost } from "../../shared/link/carrier-end.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** A server that has sent us away closes its port under whoever still comes, at the latest so long after its last link, ms. */
export const PARTING_MS = 1_000;
/** A link may outlast the word that sent it away by hours: a cut so long after it, ms, need not be that server's. */
export const LEAVING_MS = 60_000;

/** What may be met of a server that leaves: its refusals, the end of its port. */
export interface Parting {
  readonly answers: boolean;
  readonly cuts: boolean;
}

/** The server drains, and says so: a planned restart, after which it or another server takes the agent. */
export function isDraining(error: unknown): error is LinkRefused {
  return error instanceof LinkRefused && error.closeCode === CloseCode.draining;
}

/**
 * What an attempt meets at a server that ends in order, in words for that: nothing is wrong, and nobody in between is to be
 * asked. `mayBeCut`: it has just sent us away, or gone. `undefined`: it is something else.
 */
export function partingWords(error: unknown, mayBeCut: boolean): string | undefined {
  if (isDraining(error)) return error.reason;
  const cause = error instanceof Error ? error.cause : undefined;
  const isCut = cause instanceof CarrierLost || (cause instanceof Error && peerAction(cause) !== undefined);
  return isCut && mayBeCut ? "the server that sent us away takes no connections any more" : undefined;
}
