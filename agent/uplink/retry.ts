import { backoffMs, MANY_FAILURES, type RetryOptions } from "../../shared/basics/backoff.ts";
import { DialFault, type FaultCode, faultRow } from "../../shared/faults/faults.ts";
import { peerAction } from "../../shared/http/connection.ts";
import { CallersPort } from "../../shared/link/dial-faults.ts";
import { CarrierLost } from "../../shared/link/link-events.ts";
import { printable } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { UnseenCertificate } from "./tls-terminator.ts";

export interface Retry {
  readonly waitMs: number;
  /** The server refuses this agent: time changes nothing, somebody has to act. */
  readonly refused: boolean;
  /** The value of the label `reason` in the metric. */
  readonly label: string;
  /** The row of the table of faults, where there is one. */
  readonly fault: FaultCode | undefined;
  /** A sentence, for the log. */
  readonly reason: string;
}

/**
 * How long to wait after `failures` failures and this one, and what to log. Waits have full jitter, and `Retry-After`
 * is their floor. A refusal that somebody has to act on is tried again slowly: a new certificate, the server's document
 * of the cluster, or another target of a balancer may change it without a restart.
 */
export function retryAfter(error: unknown, failures: number, askedMs: number, options: RetryOptions): Retry {
  const { fault, label, floorMs: ownFloorMs, isSlow } = classify(error);
  const floorMs = Math.max(askedMs, ownFloorMs);
  const slowMs = options.capMs / 2;
  const waitMs = isSlow
    ? backoffMs(MANY_FAILURES, Math.max(floorMs, slowMs), { ...options, capMs: slowMs })
    : backoffMs(failures, floorMs, options);
  // OpenSSL ends its messages with a line break, and some of the words are a peer's.
  const reason = printable(sentence(error), MAX_REASON);
  return { waitMs, refused: isSlow && error instanceof LinkRefused, label, fault, reason };
}

function classify(error: unknown) {
  const fault = faultOf(error);
  if (fault === undefined) return { fault, label: "failed", floorMs: 0, isSlow: false };
  const { retryAfterMs } = error as DialFault | LinkRefused;
  const refusal = error instanceof LinkRefused ? REFUSALS[error.status ?? error.closeCode ?? 0] : undefined;
  const row: { readonly label?: string; readonly isSlow?: boolean } =
    fault === "not_admitted" ? (refusal ?? { label: "refused" }) : faultRow(fault);
  const { label = fault, isSlow = false } = row;
  return { fault, label, floorMs: retryAfterMs ?? refusal?.minWaitMs ?? 0, isSlow };
}

/** The code of an error of a dial; `undefined`: the table has no row for it. */
export function faultOf(error: unknown): FaultCode | undefined {
  if (error instanceof DialFault) return error.fault;
  if (error instanceof UnseenCertificate) return "certificate_unseen";
  if (error instanceof CallersPort) return "callers_port";
  return error instanceof LinkRefused ? "not_admitted" : undefined;
}

/** Longest reason in the log; a server's refusal may be a kilobyte. */
const MAX_REASON = 1_100;

/** The word for a server's refusal, by HTTP status or close code. */
interface ServerRefusal {
  readonly label: string;
  /** The server would get the same credential again, and refuse it again. */
  readonly isSlow?: true;
  /**
   * A close code has no Retry-After. Asking ten times a second changes nothing: the server leaves, has no room, or
   * another process has our id.
   */
  readonly minWaitMs?: number;
}

const REFUSALS: Readonly<Record<number, ServerRefusal>> = {
  401: { label: "unauthenticated", isSlow: true },
  403: { label: "forbidden", isSlow: true },
  429: { label: "limited" },
  // It drains, or it is crowded: the sentence says which.
  503: { label: "unavailable" },
  [CloseCode.unauthenticated]: { label: "unauthenticated", isSlow: true },
  [CloseCode.forbidden]: { label: "forbidden", isSlow: true },
  [CloseCode.alreadyConnected]: { label: "already_connected", minWaitMs: 1_000 },
  [CloseCode.duplicate]: { label: "duplicate" },
  [CloseCode.limited]: { label: "limited", minWaitMs: 1_000 },
  [CloseCode.draining]: { label: "draining", minWaitMs: 1_000 },
  [CloseCode.unknownLink]: { label: "unknown_link" },
  [CloseCode.foreignLink]: { label: "foreign_link" },
  [CloseCode.badProof]: { label: "bad_proof" },
  [CloseCode.linkOfAnother]: { label: "link_of_another" },
  [CloseCode.badOffset]: { label: "bad_offset" },
};

/** The words of a failed dial that an operator can look up. */
function sentence(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.message || ((error as NodeJS.ErrnoException).code ?? error.name);
}

/** The server says that it drains: a planned restart, after which it or another server accepts the agent. */
export function isDraining(error: unknown): error is LinkRefused {
  return error instanceof LinkRefused && error.closeCode === CloseCode.draining;
}

/**
 * The reason to log for what an attempt meets at a server that shuts down cleanly: nothing is wrong, and no middlebox
 * is to be suspected. `mayBeCut`: it has just drained this agent, or closed. `undefined`: it is something else.
 */
export function shutdownReason(error: unknown, mayBeCut: boolean): string | undefined {
  if (isDraining(error)) return printable(error.reason, MAX_REASON);
  const cause = error instanceof Error ? error.cause : undefined;
  const isCut = cause instanceof CarrierLost || (cause instanceof Error && peerAction(cause) !== undefined);
  return isCut && mayBeCut ? "the server that drained this agent accepts no connections any more" : undefined;
}
