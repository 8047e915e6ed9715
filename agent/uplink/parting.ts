import { CarrierLost } from "../../shared/link/carrier-end.ts";
import { brokenOff } from "../../shared/net/broken-off.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** A server that has sent us away closes its port under whoever still comes, at the latest so long after its last link, ms. */
export const PARTING_MS = 1_000;

/**
 * What an attempt meets at a server that ends in order, in words for that: nothing is wrong, and nobody in between is to be
 * asked. `undefined`: it is something else.
 */
export function partingWords(error: unknown): string | undefined {
  if (error instanceof LinkRefused && error.closeCode === CloseCode.draining) return error.reason;
  const cause = error instanceof Error ? error.cause : undefined;
  const isCut = cause instanceof CarrierLost || (cause instanceof Error && brokenOff(cause) !== undefined);
  return isCut ? "the server that sent us away takes no connections any more" : undefined;
}
