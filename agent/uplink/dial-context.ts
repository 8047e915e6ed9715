import type { SecureVersion } from "node:tls";
import type { RetryOptions } from "../../shared/basics/backoff.ts";
import { isUnknownIssuer } from "../../shared/faults/faults.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { CarrierDialOptions } from "../../shared/link/dial.ts";
import type { LinkOptions } from "../../shared/link/link.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import type { ConnectionOptions } from "./connection.ts";
import { type Credentials, endOf, type KeptCredentials } from "./credentials.ts";
import type { Path } from "./path.ts";
import type { ServerRoute } from "./proxy-route.ts";
import type { ServerLocation } from "./servers.ts";
import type { TerminatorRule } from "./tls-terminator.ts";

/** What an attempt needs, and each later carrier of its link. */
export interface DialContext {
  readonly server: ServerLocation;
  readonly route: ServerRoute;
  readonly credentials: Pick<KeptCredentials, "current">;
  readonly tls: { readonly minVersion: SecureVersion; readonly ciphers: string };
  readonly innerTls: TerminatorRule["innerTls"];
  readonly hello: Hello;
  readonly timeoutMs: number;
  /** What the agent has learned of the network path to the server. */
  readonly path: Path;
  /** Bytes that a link keeps for its next carrier. */
  readonly replayBytes: number;
  readonly retry: RetryOptions;
  /** The server has announced another number of servers. */
  readonly onServers?: () => void;
  readonly session: Pick<SessionOptions, "maxWindow" | "budget" | "maxStreams" | "pool">;
}

/** The credentials and the deadline of one dial. */
export interface DialTerms {
  readonly credentials: Credentials;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Longest dial for a suspended link, ms: the grace must have time for several. */
const RESUME_TIMEOUT_MS = 5_000;
const LEAST_ATTEMPTS = 3;
const MIN_RESUME_MS = 500;

/** A carrier is replaced so long before its certificate or token ends, ms. */
const RENEWAL_MS = 60_000;

/** Everything about a dial but the agent's own certificate and token. */
export function carrierOptions(
  { server, route, tls, path }: DialContext,
  { credentials: { ca, outerCa }, timeoutMs, signal }: DialTerms,
) {
  const { minVersion, ciphers } = tls;
  return {
    host: server.host,
    port: server.port,
    path: server.path,
    open: route.open,
    tls: { minVersion, ...(ciphers === "" ? {} : { ciphers }) },
    trust: { ca, outerCa },
    timeoutMs,
    keepaliveMs: path.keepaliveMs,
    signal,
    watch: { onEcho: (ms) => path.onEcho(ms) },
  } satisfies CarrierDialOptions;
}

/** Reports to the route whether it led to the server. A route through a middlebox of `--outer-ca` did. */
export async function reportToRoute<T>(
  { route }: DialContext,
  { credentials, signal }: DialTerms,
  dialling: Promise<T>,
): Promise<T> {
  try {
    const dialled = await dialling;
    route.worked();
    return dialled;
  } catch (error) {
    const isExpected = isUnknownIssuer(error) && credentials.outerCa !== undefined;
    if (!(error instanceof LinkRefused || isExpected || signal.aborted)) route.failed();
    throw error;
  }
}

export function linkOptions({ replayBytes, session: { pool } }: DialContext): Omit<LinkOptions, "graceMs"> {
  return { replayBytes, ...(pool && { pool }) };
}

/** `used`: the credentials of the last dial. */
export function connectionOptions(
  { session, retry, path, onServers }: DialContext,
  used: () => Credentials,
): Pick<ConnectionOptions, "session" | "retry" | "carrierAgeMs" | "onServers"> {
  const carrierAgeMs = (): number | undefined => sooner(path.nextCarrierAgeMs(), untilRenewal(endOf(used())));
  return { session, retry, carrierAgeMs, onServers };
}

/** The terms of a dial for an open link, with the credentials that are in the files now. */
export function resumeTerms({ credentials, timeoutMs }: DialContext, graceMs: number, signal: AbortSignal): DialTerms {
  const share = Math.max(MIN_RESUME_MS, graceMs / LEAST_ATTEMPTS);
  return { credentials: credentials.current(), timeoutMs: Math.min(timeoutMs, RESUME_TIMEOUT_MS, share), signal };
}

/** A renewed credential should be in the file by then, and a carrier that was opened with the old one is replaced. */
function untilRenewal(credentialsEnd: Date | undefined): number | undefined {
  if (credentialsEnd === undefined) return undefined;
  const leftMs = credentialsEnd.getTime() - Date.now() - RENEWAL_MS;
  return leftMs > 0 ? leftMs : undefined;
}

function sooner(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}
