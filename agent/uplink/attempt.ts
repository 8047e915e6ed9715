import type { SecureVersion } from "node:tls";
import type { Hello } from "../../shared/link/control.ts";
import { type Dialled, dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import type { BackoffOptions } from "../../shared/process/backoff.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import type { ServerLocation } from "../server-url.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { endOf } from "./credentials.ts";
import type { KeptCredentials } from "./kept-credentials.ts";
import type { Path } from "./path.ts";
import type { ServerWay } from "./way-out.ts";

export interface AttemptOptions {
  readonly server: ServerLocation;
  readonly way: ServerWay;
  readonly credentials: Pick<KeptCredentials, "current">;
  readonly tls: { readonly minVersion: SecureVersion; readonly ciphers: string };
  readonly hello: Hello;
  readonly timeoutMs: number;
  /** What is known of the way to the server. */
  readonly path: Path;
  /** Bytes that a link keeps for its next carrier. */
  readonly replayBytes: number;
  readonly retry: Pick<BackoffOptions, "baseMs" | "capMs">;
  readonly session: Pick<SessionOptions, "maxWindow" | "budget" | "maxStreams" | "pool">;
}

/** A dial for a link that has nothing else must leave room in the grace for others, ms. */
const RESUME_TIMEOUT_MS = 5_000;
const LEAST_ATTEMPTS = 3;
const MIN_RESUME_MS = 500;

/** A carrier is replaced so long before its certificate or token ends, ms. */
const RENEWAL_MS = 60_000;

/** One try of an uplink: credentials, way out → TLS → upgrade → hello → welcome, link, session. */
export async function attempt(
  options: AttemptOptions,
  owner: ConnectionOwner,
  signal: AbortSignal,
): Promise<Connection> {
  const { timeoutMs, hello, path } = options;
  const first = await dial(options, () => hello, timeoutMs, signal);
  const { carrier, welcome, remote } = first;
  let { credentialsEnd } = first;
  const link = new Link(welcome.link, remote, carrier, {
    graceMs: welcome.graceMs,
    replayBytes: options.replayBytes,
    pool: options.session.pool,
  });
  return new Connection(link, welcome, owner, {
    session: options.session,
    retry: options.retry,
    redial: async (resume, again) => {
      const words = () => ({ ...hello, resume: resume() });
      const shareMs = Math.max(MIN_RESUME_MS, welcome.graceMs / LEAST_ATTEMPTS);
      const next = await dial(options, words, Math.min(timeoutMs, RESUME_TIMEOUT_MS, shareMs), again);
      credentialsEnd = next.credentialsEnd;
      return next;
    },
    carrierAgeMs: () => sooner(path.nextCarrierAgeMs(), untilRenewal(credentialsEnd)),
  });
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

/** A carrier, and when what it was opened with ends. The credentials are read anew for each. */
async function dial(
  { server, way, credentials, tls, path }: AttemptOptions,
  hello: () => Hello,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Dialled & { readonly credentialsEnd: Date | undefined }> {
  const shown = credentials.current();
  const { ca, cert, key, token } = shown;
  const { minVersion, ciphers } = tls;
  const dialled = await dialCarrier({
    host: server.host,
    port: server.port,
    path: server.path,
    open: way.open,
    tls: { ca, cert, key, minVersion, ...(ciphers === "" ? {} : { ciphers }) },
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token.text}` } }),
    hello,
    timeoutMs,
    keepaliveMs: path.keepaliveMs,
    signal,
  }).catch((error) => {
    if (!(error instanceof LinkRefused || signal.aborted)) way.failed();
    throw error;
  });
  return { ...dialled, credentialsEnd: endOf(shown) };
}
