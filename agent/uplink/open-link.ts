import type { SecureVersion, TLSSocket } from "node:tls";
import { isUnknownIssuer } from "../../shared/faults/faults.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { Hello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, type DialWatcher, dialCarrier, dialOuter } from "../../shared/link/dial.ts";
import {
  type InnerHello,
  type InnerPipe,
  type InnerWelcome,
  parseInnerReply,
  type Renewed,
} from "../../shared/link/inner-pipe.ts";
import { dialInner, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { Link, type LinkOptions } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { AgentOptions } from "../context/options.ts";
import type { ServerLocation } from "../context/servers.ts";
import type { Credentials } from "./credentials.ts";
import type { Path } from "./path.ts";
import type { ServerRoute } from "./proxy-route.ts";
import { dialMiddlebox, dialServer, middleboxCa } from "./tls-terminator.ts";

// From credentials and a route to a link that the server has welcomed: what an attempt of an uplink and the doctor do.

/** The context in which a link is opened. */
export interface LinkContext {
  readonly options: AgentOptions;
  readonly server: ServerLocation;
  readonly route: ServerRoute;
  readonly hello: Hello;
  /** The facts that the agent has learned about the network path to the server. */
  readonly path: Path;
  /** How long the link waits for its next carrier, ms; absent: as long as the server's welcome says. */
  readonly graceMs?: number;
  /** Pays for what links keep; absent: nobody does. */
  readonly memory?: MemoryAccount;
}

/** The credentials and the deadline of one dial. */
export interface DialTerms {
  readonly credentials: Credentials;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Gets its steps. */
  readonly watch?: DialWatcher & { onInnerSecure?(socket: TLSSocket): void };
}

/** A link that the server has welcomed. */
export interface OpenedLink {
  /** Proves both ends of the link to each other. */
  readonly key: LinkKey;
  readonly link: Link;
  /** The byte pipe below the session: the link, or the inner TLS over it. */
  readonly pipe: Transport;
  readonly welcome: InnerWelcome;
}

/** Opens a link by the server's own TLS. */
export async function openDirectly(context: LinkContext, terms: DialTerms): Promise<OpenedLink> {
  const hello = (proxy: string | undefined): Hello => ({ ...context.hello, ...(proxy !== undefined && { proxy }) });
  const { carrier, welcome, remote } = await dialDirectly(context, terms, (to) => dialCarrier({ ...to, hello }));
  const { graceMs = welcome.graceMs } = context;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(context), graceMs });
  return { link, pipe: link, welcome, key: LinkKey.parse(welcome.key) };
}

/** A TLS handshake with the server itself shows that no middlebox opens TLS. */
export function dialDirectly<T>(
  context: LinkContext,
  terms: DialTerms,
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T> {
  const { path } = context;
  const to = carrierOptions(context, terms);
  const onSecure = (socket: TLSSocket): void => {
    path.intercepted = false;
    terms.watch?.onSecure?.(socket);
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return reportToRoute(context, terms, dialServer(watched, context, terms.credentials, dial));
}

/** Opens a link with inner TLS over a middlebox's. */
export async function openViaMiddlebox(context: LinkContext, terms: DialTerms): Promise<OpenedLink> {
  const ca = middleboxCa(context, terms.credentials);
  const { link, carrier, pipe, key, answer: welcome } = await startInnerTls(context, terms, ca);
  if (welcome.type !== "welcome") {
    link.destroy();
    throw new Error("the server sent no welcome inside the inner TLS");
  }
  link.assignId(welcome.link, context.graceMs ?? welcome.graceMs);
  carrier.setKeepalive(Math.min(context.options.keepaliveMs, welcome.keepaliveMs));
  return { link, pipe, welcome, key };
}

/**
 * Dials a carrier, starts inner TLS on it and sends the hello, and returns the server's answer with the new link.
 * `renews`: the link whose credential is renewed. Rejects with `LinkRefused` or a sentence, and ends the link.
 */
export async function startInnerTls(
  context: LinkContext,
  terms: DialTerms,
  outerCa: CarrierDialOptions["tls"]["ca"],
  renews?: string,
) {
  const { hello, server } = context;
  const { credentials, signal } = terms;
  const { ca, cert, key, token } = credentials;
  const until = performance.now() + terms.timeoutMs;
  const { carrier, remote, proxy } = await dialViaMiddlebox(context, terms, outerCa, (to) =>
    dialOuter({ ...to, link: renews }),
  );
  const link = new UntrustedLink(remote, carrier, linkOptions(context));
  const timeoutMs = Math.max(1, until - performance.now());
  const late = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(timeoutMs))]);
  const inner = await dialInner(link, { host: server.host, tls: { ca, cert, key }, timeoutMs, signal });
  terms.watch?.onInnerSecure?.(inner.socket);
  const words = {
    ...hello,
    ...(proxy !== undefined && { proxy }),
    ...(token && { bearer: token.text }),
    ...(renews !== undefined && { renews }),
  };
  const answer = await sendHello(inner.pipe, words, late);
  return { link, carrier, pipe: inner.pipe, key: inner.key, answer };
}

/** Dials a middlebox of these authorities, which gets neither certificate nor token. */
export function dialViaMiddlebox<T>(
  context: LinkContext,
  terms: DialTerms,
  outerCa: CarrierDialOptions["tls"]["ca"],
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T> {
  return reportToRoute(context, terms, dialMiddlebox(carrierOptions(context, terms), outerCa, dial));
}

/** Sends the hello and reads the answer, once inner TLS is up. Rejects with `LinkRefused` or a sentence. */
export async function sendHello(
  pipe: InnerPipe,
  hello: InnerHello,
  until: AbortSignal,
): Promise<InnerWelcome | Renewed> {
  const onLate = (): void => pipe.destroy(new Error("no welcome came inside the inner TLS"));
  until.addEventListener("abort", onLate, { once: true });
  if (until.aborted) onLate();
  try {
    pipe.sendMessage(hello);
    return parseInnerReply(await pipe.readMessage());
  } catch (error) {
    pipe.destroy(error as Error);
    throw error;
  } finally {
    until.removeEventListener("abort", onLate);
  }
}

/** Everything about a dial but the agent's own certificate and token. */
export function carrierOptions(
  { server, route, options, path }: LinkContext,
  { credentials: { ca, outerCa }, timeoutMs, signal, watch }: DialTerms,
) {
  const { tlsMinVersion, cipherSuites: ciphers } = options;
  return {
    host: server.host,
    port: server.port,
    path: server.path,
    open: route.open,
    tls: { minVersion: tlsMinVersion as SecureVersion, ...(ciphers === "" ? {} : { ciphers }) },
    trust: { ca, outerCa },
    timeoutMs,
    keepaliveMs: options.keepaliveMs,
    signal,
    watch: { ...watch, onEcho: (ms) => path.onEcho(ms) },
  } satisfies CarrierDialOptions;
}

/** Reports to the route whether it has reached the server. A route through a middlebox of `--outer-ca` has. */
export async function reportToRoute<T>(
  { route }: LinkContext,
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

function linkOptions({ options, memory }: LinkContext): Omit<LinkOptions, "graceMs"> {
  return { replayBytes: options.replayBuffer, ...(memory && { pool: memory }) };
}
