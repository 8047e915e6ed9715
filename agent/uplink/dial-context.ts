import type { SecureVersion } from "node:tls";
import type { BackoffOptions } from "../../shared/basics/backoff.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { CarrierDialOptions } from "../../shared/link/dial.ts";
import type { LinkOptions } from "../../shared/link/link-options.ts";
import { UnknownIssuer } from "../../shared/tls/server-certificate.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import type { ConnectionOptions } from "./connection.ts";
import { type Credentials, endOf, type KeptCredentials } from "./credentials.ts";
import type { Path } from "./path.ts";
import type { ServerRoute } from "./proxy-route.ts";
import type { ServerLocation } from "./servers.ts";
import type { TerminatorRule } from "./tls-terminator.ts";

/** What an attempt, and each later carrier of its link, reaches the server by. */
export interface DialContext {
  readonly server: ServerLocation;
  readonly way: ServerRoute;
  readonly credentials: Pick<KeptCredentials, "current">;
  readonly tls: { readonly minVersion: SecureVersion; readonly ciphers: string };
  readonly innerTls: TerminatorRule["innerTls"];
  readonly hello: Hello;
  readonly timeoutMs: number;
  /** What is known of the way to the server. */
  readonly path: Path;
  /** Bytes that a link keeps for its next carrier. */
  readonly replayBytes: number;
  readonly retry: Pick<BackoffOptions, "baseMs" | "capMs">;
  readonly session: Pick<SessionOptions, "maxWindow" | "budget" | "maxStreams" | "pool">;
}

/** Of one dial: what is shown in it, and how long it may take. */
export interface DialTerms {
  readonly credentials: Credentials;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** A dial for a link that has nothing else must leave room in the grace for others, ms. */
const RESUME_TIMEOUT_MS = 5_000;
const LEAST_ATTEMPTS = 3;
const MIN_RESUME_MS = 500;

/** A carrier is replaced so long before its certificate or token ends, ms. */
const RENEWAL_MS = 60_000;

/** Where to, by which way, and what is spoken there; nothing of who we are. */
export function carrierOptions(
  { server, way, tls, path }: DialContext,
  { credentials: { ca, outerCa }, timeoutMs, signal }: DialTerms,
) {
  const { minVersion, ciphers } = tls;
  return {
    host: server.host,
    port: server.port,
    path: server.path,
    open: way.open,
    tls: { minVersion, ...(ciphers === "" ? {} : { ciphers }) },
    trust: { ca, outerCa },
    timeoutMs,
    keepaliveMs: path.keepaliveMs,
    signal,
    watch: { onEcho: (ms) => path.onEcho(ms) },
  } satisfies CarrierDialOptions;
}

/** A way that leads to somebody else than the server does not go first next time; a box through which we go does. */
export async function reportToRoute<T>(
  { way }: DialContext,
  { credentials, signal }: DialTerms,
  dialling: Promise<T>,
): Promise<T> {
  try {
    const dialled = await dialling;
    way.worked();
    return dialled;
  } catch (error) {
    const isExpected = error instanceof UnknownIssuer && credentials.outerCa !== undefined;
    if (!(error instanceof LinkRefused || isExpected || signal.aborted)) way.failed();
    throw error;
  }
}

export function linkOptions({ replayBytes, session: { pool } }: DialContext): Omit<LinkOptions, "graceMs"> {
  return { replayBytes, ...(pool && { pool }) };
}

/** `shown`: what the server has seen of us last. */
export function connectionOptions(
  { session, retry, path }: DialContext,
  shown: () => Credentials,
): Pick<ConnectionOptions, "session" | "retry" | "carrierAgeMs"> {
  return { session, retry, carrierAgeMs: () => sooner(path.nextCarrierAgeMs(), untilRenewal(endOf(shown()))) };
}

/** Of a dial for a link that is there: with what is in the files now. */
export function resumeTerms({ credentials, timeoutMs }: DialContext, graceMs: number, signal: AbortSignal): DialTerms {
  const share = Math.max(MIN_RESUME_MS, graceMs / LEAST_ATTEMPTS);
  return { credentials: credentials.current(), timeoutMs: Math.min(timeoutMs, RESUME_TIMEOUT_MS, share), signal };
}

/** By then a renewed one should be in the file; a carrier that was opened with the old one is replaced. */
function untilRenewal(credentialsEnd: Date | undefined): number | undefined {
  if (credentialsEnd === undefined) return undefined;
  const leftMs = credentialsEnd.getTime() - Date.now() - RENEWAL_MS;
  return leftMs > 0 ? leftMs : undefined;
}

function sooner(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}
