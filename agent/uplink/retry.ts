import { backoffMs } from "../../shared/basics/backoff.ts";
import { RouteFault } from "../../shared/dial/fault.ts";
import { peerAction } from "../../shared/http/connection-end.ts";
import { CarrierLost } from "../../shared/link/carrier-end.ts";
import { CallersPort, MiddleBox } from "../../shared/link/upgrade-answer.ts";
import { printable } from "../../shared/outcomes.ts";
import { UnknownIssuer } from "../../shared/tls/server-certificate.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

export interface RetryOptions {
  /** Longest wait after the first failure; doubles with each … */
  readonly baseMs: number;
  /** … up to this. */
  readonly capMs: number;
  readonly random?: () => number;
}

export interface Retry {
  readonly waitMs: number;
  /** The server says no: time will not mend it, somebody has to act. */
  readonly refused: boolean;
  /** A word of ours, for a metric: no more than the status or the close code says. */
  readonly label: string;
  /** A sentence, for the log. */
  readonly reason: string;
}

/**
 * How long to wait after `failures` failures and this one, and what to say (design: "Lifecycle"): full jitter;
 * `Retry-After` is a floor; a refusal that somebody has to mend is tried again slowly: a new certificate, the
 * server's document of the cluster, or where a balancer leads to may mend it without a restart.
 */
export function retryAfter(error: unknown, failures: number, askedMs: number, options: RetryOptions): Retry {
  const { baseMs, capMs, random = Math.random } = options;
  // OpenSSL ends its messages with a line break, and some of the words are a stranger's.
  const reason = printable(sentence(error), MAX_REASON);
  const { label, backInMs, stands } = readFailure(error);
  const floorMs = Math.max(askedMs, backInMs);
  // An account that is asked with the same wrong password again and again is locked.
  const waitMs = stands
    ? backoffMs(LATE, Math.max(floorMs, capMs / 2), { baseMs, capMs: capMs / 2, random })
    : backoffMs(failures, floorMs, { baseMs, capMs, random });
  return { waitMs, refused: stands && error instanceof LinkRefused, label, reason };
}

interface Failure {
  readonly label: string;
  /** What was asked for by whoever said no. */
  readonly backInMs: number;
  /** The server or a proxy says no to who we are, or to where we knock: it hears the same again, and says the same. */
  readonly stands: boolean;
}

function readFailure(error: unknown): Failure {
  if (error instanceof RouteFault) {
    const { fault: label, retryAfterMs = 0 } = error;
    return { label, backInMs: retryAfterMs, stands: label === "proxy_auth_refused" };
  }
  if (error instanceof MiddleBox) {
    return { label: error.kind, backInMs: error.retryAfterMs ?? 0, stands: false };
  }
  if (error instanceof UnknownIssuer) return { label: error.kind, backInMs: 0, stands: false };
  if (!(error instanceof LinkRefused)) return { label: "failed", backInMs: 0, stands: false };
  if (error instanceof CallersPort) return { label: "callers_port", backInMs: 0, stands: true };
  const label = LABELS[error.status ?? error.closeCode ?? 0] ?? "refused";
  // A close code has no Retry-After.
  const backInMs = error.retryAfterMs ?? LEAST_WAIT_MS[error.closeCode ?? 0] ?? 0;
  return { label, backInMs, stands: label === "unauthenticated" || label === "forbidden" };
}

/** Longest reason in the log; a server's refusal may be a kilobyte. */
const MAX_REASON = 1_100;

/**
 * The least wait where asking ten times a second changes nothing: a server that goes or has no room, a process that has
 * our id.
 */
const LEAST_WAIT_MS: Readonly<Record<number, number>> = {
  [CloseCode.draining]: 1_000,
  [CloseCode.alreadyConnected]: 1_000,
  [CloseCode.limited]: 1_000,
};

/** So many failures that the jitter has its whole width. */
const LATE = 64;

const LABELS: Readonly<Record<number, string>> = {
  401: "unauthenticated",
  403: "forbidden",
  429: "limited",
  // It drains, or it is crowded: the sentence tells.
  503: "unavailable",
  [CloseCode.unauthenticated]: "unauthenticated",
  [CloseCode.forbidden]: "forbidden",
  [CloseCode.alreadyConnected]: "already_connected",
  [CloseCode.duplicate]: "duplicate",
  [CloseCode.limited]: "limited",
  [CloseCode.draining]: "draining",
  [CloseCode.unknownLink]: "unknown_link",
  [CloseCode.foreignLink]: "foreign_link",
  [CloseCode.badProof]: "bad_proof",
  [CloseCode.linkOfAnother]: "link_of_another",
  [CloseCode.badOffset]: "bad_offset",
};

/** The words of a failed dial that an operator can look up. */
function sentence(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Happy eyeballs fails with one error for each address, and no message of its own.
  if (error instanceof AggregateError && error.errors.length > 0) {
    return [...new Set(error.errors.map(sentence))].join("; ");
  }
  const code = (error as NodeJS.ErrnoException).code;
  if (error.message === "") return code ?? error.name;
  return code === undefined || error.message.includes(code) ? error.message : `${error.message} (${code})`;
}

/** A server that has sent us away closes its port under whoever still comes, at the latest so long after its last link, ms. */
export const SHUTDOWN_MS = 1_000;
/** A link may outlast the word that sent it away by hours: a cut so long after it, ms, need not be that server's. */
export const DRAIN_CUT_MS = 60_000;

/** What may be met of a server that leaves: its refusals, the end of its port. */
export interface ServerShutdown {
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
export function shutdownReason(error: unknown, mayBeCut: boolean): string | undefined {
  if (isDraining(error)) return error.reason;
  const cause = error instanceof Error ? error.cause : undefined;
  const isCut = cause instanceof CarrierLost || (cause instanceof Error && peerAction(cause) !== undefined);
  return isCut && mayBeCut ? "the server that sent us away takes no connections any more" : undefined;
}
