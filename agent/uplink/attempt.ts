import { rootCertificates, type SecureVersion } from "node:tls";
import type { Hello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialCarrier, dialOuter, probeServer } from "../../shared/link/dial.ts";
import { Intercepted } from "../../shared/link/intercepted.ts";
import { Link } from "../../shared/link/link.ts";
import type { BackoffOptions } from "../../shared/process/backoff.ts";
import { HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import type { ServerLocation } from "../server-url.ts";
import { Connection, type ConnectionOptions, type ConnectionOwner } from "./connection.ts";
import { type Credentials, endOf } from "./credentials.ts";
import { greetInside } from "./inside.ts";
import type { KeptCredentials } from "./kept-credentials.ts";
import { ByKey, ByToken } from "./next-carrier.ts";
import type { Path } from "./path.ts";
import type { ServerWay } from "./way-out.ts";

export interface AttemptOptions {
  readonly server: ServerLocation;
  readonly way: ServerWay;
  readonly credentials: Pick<KeptCredentials, "current">;
  readonly tls: { readonly minVersion: SecureVersion; readonly ciphers: string };
  readonly innerTls: "always" | "auto" | "never";
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
  const { innerTls, path, timeoutMs } = options;
  if (innerTls === "always") return inside(options, owner, signal, timeoutMs);
  if (innerTls === "never") return outside(options, owner, signal, timeoutMs);
  const until = performance.now() + timeoutMs;
  const leftMs = () => Math.max(1, until - performance.now());
  // First what worked last: an attempt that is in vain costs a handshake.
  const mayGoInside = options.credentials.current().outerCa !== undefined;
  const [first, second] = path.intercepted && mayGoInside ? [inside, outside] : [outside, inside];
  try {
    return await first(options, owner, signal, leftMs());
  } catch (error) {
    if (!(error instanceof Intercepted)) throw error;
    path.intercepted = first === outside;
    if (!mayGoInside) throw error;
    return second(options, owner, signal, leftMs());
  }
}

/** The server's own TLS is all there is: certificate or token are shown in it. */
async function outside(
  options: AttemptOptions,
  owner: ConnectionOwner,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Connection> {
  const { hello, path, innerTls } = options;
  let credentialsEnd: Date | undefined;
  const dial = async (hello: () => Hello, ms: number, aborted: AbortSignal) => {
    const shown = options.credentials.current();
    const { ca, cert, key, token } = shown;
    const to = carrierTo(options, ms, aborted);
    // TLS would show our certificate before we know the other end's: where somebody may stand between, we look first.
    const isDoubtful = shown.outerCa !== undefined || path.intercepted;
    if (cert !== undefined && isDoubtful && innerTls === "auto") {
      await byWay(options, aborted, probeServer({ ...to, tls: { ...to.tls, ca } }));
      path.intercepted = false;
    }
    const dialling = dialCarrier({
      ...to,
      tls: { ...to.tls, ca, cert, key },
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token.text}` } }),
      hello,
    });
    const dialled = await byWay(options, aborted, dialling);
    credentialsEnd = endOf(shown);
    return dialled;
  };
  const { carrier, welcome, remote } = await dial(() => hello, timeoutMs, signal);
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(options), graceMs: welcome.graceMs });
  const proof = new ByToken(hello, welcome.token);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(options, () => credentialsEnd),
    redial: async (words, again) =>
      proof.take(await dial(() => proof.hello(words()), resumeMs(options, welcome.graceMs), again)),
  });
}

/** The TLS outside may end in between: nothing is shown in it, and all in the inner TLS over the link. */
async function inside(
  options: AttemptOptions,
  owner: ConnectionOwner,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Connection> {
  const { server, hello } = options;
  const first = options.credentials.current();
  let credentialsEnd = endOf(first);
  const meet = async (shown: Credentials, ca: CarrierCa, ms: number, aborted: AbortSignal, renews?: string) => {
    const until = performance.now() + ms;
    const to = carrierTo(options, ms, aborted);
    const words = { type: "hello", version: HANDSHAKE_VERSION, inner: true } as const;
    const dialling = dialOuter({ ...to, tls: { ...to.tls, ca }, hello: () => words });
    const { carrier, remote } = await byWay(options, aborted, dialling);
    const link = new Link("", remote, carrier, { ...linkOptions(options), graceMs: 0 });
    const met = await greetInside(link, {
      ...{ host: server.host, hello, credentials: shown, signal: aborted },
      timeoutMs: Math.max(1, until - performance.now()),
      ...(renews !== undefined && { renews }),
    });
    return { ...met, link, carrier };
  };
  // Whoever is known by --ca-cert alone is the server itself, and needs no inner TLS, unless that is wanted always.
  const outerCa = options.innerTls === "always" ? anyCa(first) : [...(first.outerCa ?? [])];
  const { link, carrier, pipe, key, answer } = await meet(first, outerCa, timeoutMs, signal);
  if (answer.type !== "welcome") {
    link.destroy();
    throw new Error("the server has not welcomed us inside the inner TLS");
  }
  const { graceMs } = answer;
  link.settle(answer.link, graceMs);
  carrier.setKeepalive(Math.min(options.path.keepaliveMs, answer.keepaliveMs));
  const proof = new ByKey(key);
  return new Connection(link, answer, owner, {
    ...connectionOptions(options, () => credentialsEnd),
    pipe,
    prove: async (again) => {
      const shown = options.credentials.current();
      const met = await meet(shown, anyCa(shown), resumeMs(options, graceMs), again, link.id);
      met.pipe.end();
      credentialsEnd = endOf(shown);
    },
    redial: async (words, again) => {
      const to = carrierTo(options, resumeMs(options, graceMs), again);
      const ca = anyCa(options.credentials.current());
      const dialling = dialOuter({ ...to, tls: { ...to.tls, ca }, hello: () => proof.hello(words()) });
      return proof.take(await byWay(options, again, dialling), link.id);
    },
  });
}

/** A way that leads to somebody else than the server does not go first next time; a box through which we go does. */
async function byWay<T>({ way, credentials }: AttemptOptions, signal: AbortSignal, dialling: Promise<T>): Promise<T> {
  try {
    return await dialling;
  } catch (error) {
    const isExpected = error instanceof Intercepted && credentials.current().outerCa !== undefined;
    if (!(error instanceof LinkRefused || isExpected || signal.aborted)) way.failed();
    throw error;
  }
}

type CarrierCa = CarrierDialOptions["tls"]["ca"];

/** The server's authorities and those of whoever may stand between; Node's own where the server's are not given. */
function anyCa({ ca, outerCa = [] }: Credentials): CarrierCa {
  if (ca === undefined && outerCa.length === 0) return undefined;
  return [...(ca === undefined ? rootCertificates : [ca]), ...outerCa];
}

function carrierTo(options: AttemptOptions, timeoutMs: number, signal: AbortSignal): CarrierDialOptions {
  const { server, way, tls, path } = options;
  const { minVersion, ciphers } = tls;
  return {
    host: server.host,
    port: server.port,
    path: server.path,
    open: way.open,
    tls: { minVersion, ...(ciphers === "" ? {} : { ciphers }) },
    timeoutMs,
    keepaliveMs: path.keepaliveMs,
    signal,
  };
}

function linkOptions({ replayBytes, session: { pool } }: AttemptOptions) {
  return { replayBytes, pool };
}

function connectionOptions(
  { session, retry, path }: AttemptOptions,
  credentialsEnd: () => Date | undefined,
): Pick<ConnectionOptions, "session" | "retry" | "carrierAgeMs"> {
  return { session, retry, carrierAgeMs: () => sooner(path.nextCarrierAgeMs(), untilRenewal(credentialsEnd())) };
}

function resumeMs({ timeoutMs }: AttemptOptions, graceMs: number): number {
  return Math.min(timeoutMs, RESUME_TIMEOUT_MS, Math.max(MIN_RESUME_MS, graceMs / LEAST_ATTEMPTS));
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
