import { randomUUID } from "node:crypto";
import type { SecureVersion } from "node:tls";
import { isEmpty, parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { RetryOptions } from "../../shared/basics/backoff.ts";
import { isUnknownIssuer } from "../../shared/faults/faults.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialAgain, dialCarrier, dialOuter, OUTER_HELLO } from "../../shared/link/dial.ts";
import {
  type InnerHello,
  type InnerPipe,
  type InnerWelcome,
  parseInnerReply,
  type Renewed,
} from "../../shared/link/inner-pipe.ts";
import { dialInner, type InnerTls, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { Link, type LinkOptions } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import { Connection, type ConnectionOptions, type ConnectionOwner } from "./connection.ts";
import { type Credentials, endOf, type KeptCredentials } from "./credentials.ts";
import type { Path } from "./path.ts";
import type { ServerRoute } from "./proxy-route.ts";
import { provenBy } from "./resumption.ts";
import type { ServerLocation } from "./servers.ts";
import {
  dialMiddlebox,
  dialServer,
  dialTerminators,
  middleboxCa,
  outerTrust,
  type TerminatorRule,
} from "./tls-terminator.ts";

/**
 * One attempt of an uplink: credentials, route → TLS → upgrade → hello → welcome, link, session. Where a middlebox of
 * `--outer-ca` ends TLS, agent and server use inner TLS.
 */
export async function attempt(context: DialContext, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = context;
  const until = performance.now() + context.timeoutMs;
  const credentials = context.credentials.current();
  return await dialTerminators(
    context,
    credentials,
    (terminator) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      return terminator === "server"
        ? connectDirectly(context, owner, terms)
        : connectViaMiddlebox(context, owner, terms);
    },
    (terminator) => {
      path.intercepted = terminator === "server";
    },
  );
}

/** Connects by the server's own TLS, with the agent's certificate or token. */
export async function connectDirectly(
  context: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let used = terms.credentials;
  const { hello } = context;
  const { carrier, welcome, remote } = await dial(context, terms, (to) => dialCarrier({ ...to, hello: () => hello }));
  const { graceMs } = welcome;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(context), graceMs });
  const key = LinkKey.parse(welcome.key);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(context, () => used),
    redial: async (words, signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const dialled = await dial(context, again, (to) => {
        const keepaliveMs = Math.min(to.keepaliveMs, welcome.keepaliveMs);
        return dialAgain({
          ...to,
          link: link.id,
          keepaliveMs,
          hello: () => ({ ...hello, resume: key.prove(words()) }),
        });
      });
      used = again.credentials;
      return provenBy(key, link.id, dialled);
    },
  });
}

/** A TLS handshake with the server itself shows that no middlebox opens TLS. */
function dial<T>(context: DialContext, terms: DialTerms, dial: (to: CarrierDialOptions) => Promise<T>): Promise<T> {
  const { path } = context;
  const to = carrierOptions(context, terms);
  const onSecure = (): void => {
    path.intercepted = false;
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return reportToRoute(context, terms, dialServer(watched, context, terms.credentials, dial));
}

/** Connects through a middlebox that ends the outer TLS: certificate and token are sent in the inner TLS only. */
async function connectViaMiddlebox(
  context: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let used = terms.credentials;
  const { link, carrier, pipe, key, answer } = await startInnerTls(context, terms, middleboxCa(context, used));
  const welcome = requireWelcome(answer, link);
  const { graceMs } = welcome;
  const keepaliveMs = (): number => Math.min(context.path.keepaliveMs, welcome.keepaliveMs);
  link.assignId(welcome.link, graceMs);
  carrier.setKeepalive(keepaliveMs());
  return new Connection(link, welcome, owner, {
    ...connectionOptions(context, () => used),
    pipe,
    prove: async (signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const renewal = await startInnerTls(context, again, outerTrust(again.credentials), link.id);
      renewal.pipe.end();
      if (renewal.answer.type !== "renewed") throw new Error("the server did not renew the agent's credential");
      used = again.credentials;
    },
    redial: async (words, signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const hello = (): OuterHello => ({ ...OUTER_HELLO, resume: key.prove(words()) });
      const to = { ...carrierOptions(context, again), link: link.id, keepaliveMs: keepaliveMs() };
      const dialled = dialMiddlebox(to, outerTrust(again.credentials), (outer) => dialAgain({ ...outer, hello }));
      return provenBy(key, link.id, await reportToRoute(context, again, dialled));
    },
  });
}

/** Throws where the server answered a hello for a new link with something else, and ends the link. */
export function requireWelcome(answer: InnerWelcome | Renewed, link: Pick<Link, "destroy">): InnerWelcome {
  if (answer.type === "welcome") return answer;
  link.destroy();
  throw new Error("the server sent no welcome inside the inner TLS");
}

/** The inner TLS over a new link, with the server's answer. */
interface InnerTlsStart extends Pick<InnerTls, "pipe" | "key"> {
  readonly link: UntrustedLink;
  readonly carrier: Carrier;
  readonly answer: InnerWelcome | Renewed;
}

/**
 * Dials a carrier, starts inner TLS on it and sends the hello. `renews`: the link whose credential is renewed. Rejects
 * with `LinkRefused` or a sentence, and ends the link.
 */
async function startInnerTls(
  context: DialContext,
  terms: DialTerms,
  outerCa: CarrierDialOptions["tls"]["ca"],
  renews?: string,
): Promise<InnerTlsStart> {
  const { hello, server } = context;
  const { credentials, signal } = terms;
  const { ca, cert, key } = credentials;
  const until = performance.now() + terms.timeoutMs;
  const outer = dialMiddlebox({ ...carrierOptions(context, terms), link: renews }, outerCa, dialOuter);
  const { carrier, remote } = await reportToRoute(context, terms, outer);
  const link = new UntrustedLink(remote, carrier, linkOptions(context));
  const timeoutMs = Math.max(1, until - performance.now());
  const late = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(timeoutMs))]);
  const inner = await dialInner(link, { host: server.host, tls: { ca, cert, key }, timeoutMs, signal });
  const answer = await sendHello(inner.pipe, { hello, credentials, renews }, late);
  return { link, carrier, pipe: inner.pipe, key: inner.key, answer };
}

/** What is sent first in inner TLS, with the token. */
export interface InnerIntroduction {
  readonly hello: Omit<Hello, "resume">;
  readonly credentials: Pick<Credentials, "token">;
  /** An open link whose credential is renewed; absent: a new link. */
  readonly renews?: string | undefined;
}

/** Sends the hello and reads the answer, once inner TLS is up. Rejects with `LinkRefused` or a sentence. */
export async function sendHello(
  pipe: InnerPipe,
  { hello, credentials: { token }, renews }: InnerIntroduction,
  until: AbortSignal,
): Promise<InnerWelcome | Renewed> {
  const onLate = (): void => pipe.destroy(new Error("no welcome came inside the inner TLS"));
  until.addEventListener("abort", onLate, { once: true });
  if (until.aborted) onLate();
  const words: InnerHello = {
    ...hello,
    ...(token && { bearer: token.text }),
    ...(renews !== undefined && { renews }),
  };
  try {
    pipe.sendMessage(words);
    return parseInnerReply(await pipe.readMessage());
  } catch (error) {
    pipe.destroy(error as Error);
    throw error;
  } finally {
    until.removeEventListener("abort", onLate);
  }
}

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
  /** Serves a stream that the server has opened. */
  readonly onStream: ConnectionOptions["onStream"];
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

/** The part of it that says how a carrier is dialled. */
type CarrierContext = Pick<DialContext, "server" | "tls"> & {
  readonly route: Pick<ServerRoute, "open">;
  readonly path: Pick<Path, "keepaliveMs" | "onEcho">;
};

/** Longest dial for a suspended link, ms: the grace must have time for several. */
const RESUME_TIMEOUT_MS = 5_000;
const LEAST_ATTEMPTS = 3;
const MIN_RESUME_MS = 500;

/** A carrier is replaced so long before its certificate or token ends, ms. */
const RENEWAL_MS = 60_000;

/** Everything about a dial but the agent's own certificate and token. */
export function carrierOptions(
  { server, route, tls, path }: CarrierContext,
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

function linkOptions({ replayBytes, session: { pool } }: DialContext): Omit<LinkOptions, "graceMs"> {
  return { replayBytes, ...(pool && { pool }) };
}

/** `used`: the credentials of the last dial. */
function connectionOptions(
  { session, retry, path, onStream, onServers }: DialContext,
  used: () => Credentials,
): Pick<ConnectionOptions, "session" | "retry" | "carrierAgeMs" | "onStream" | "onServers"> {
  const carrierAgeMs = (): number | undefined => sooner(path.nextCarrierAgeMs(), untilRenewal(endOf(used())));
  return { session, retry, carrierAgeMs, onStream, onServers };
}

/** The terms of a dial for an open link, with the credentials that are in the files now. */
function resumeTerms({ credentials, timeoutMs }: DialContext, graceMs: number, signal: AbortSignal): DialTerms {
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

/** What an agent says of itself; "" = not given. */
export interface HelloOptions {
  readonly agentId: string;
  readonly cluster: string;
  readonly agentIdentifiers: readonly string[];
}

/** The hello message of a process. `program`: its name and version. */
export function helloOf({ agentId, cluster, agentIdentifiers }: HelloOptions, program: string): Hello {
  const identifiers = parseIdentifiers(agentIdentifiers);
  return {
    type: "hello",
    version: HANDSHAKE_VERSION,
    agentId,
    instance: randomUUID(),
    software: `${program} node/${process.versions.node}`,
    ...(cluster !== "" && { cluster }),
    ...(!isEmpty(identifiers) && { identifiers }),
  };
}
