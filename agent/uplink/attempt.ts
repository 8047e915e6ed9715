import { randomUUID } from "node:crypto";
import { isEmpty, parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { buildInfo } from "../../shared/basics/program.ts";
import type { Hello, OuterHello, ProvenResume } from "../../shared/link/control.ts";
import { type CarrierDialOptions, type DialledAgain, dialAgain, OUTER_HELLO } from "../../shared/link/dial.ts";
import { FEATURES, HANDSHAKE_VERSION } from "../../shared/wire/handshake.ts";
import type { AgentContext } from "../context/context.ts";
import type { AgentOptions } from "../context/options.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { type Credentials, endOf } from "./credentials.ts";
import {
  type DialTerms,
  dialDirectly,
  dialViaMiddlebox,
  type LinkContext,
  type OpenedLink,
  openDirectly,
  openViaMiddlebox,
  startInnerTls,
} from "./open-link.ts";
import type { Carriers } from "./resumption.ts";
import { dialTerminators, outerTrust } from "./tls-terminator.ts";

/**
 * One attempt of an uplink: credentials, route → TLS → upgrade → hello → welcome, link, session. Where a middlebox of
 * `--outer-ca` ends TLS, agent and server use inner TLS.
 */
export async function attempt(context: DialContext, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = context;
  const until = performance.now() + context.options.handshakeTimeoutMs;
  const credentials = context.credentials.current();
  return await dialTerminators(
    context,
    credentials,
    async (terminator) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      const isDirect = terminator === "server";
      const opened = await (isDirect ? openDirectly : openViaMiddlebox)(context, terms);
      return new Connection(opened, owner, carriersOf(context, opened, credentials, isDirect), context);
    },
    (terminator) => {
      path.intercepted = terminator === "server";
    },
  );
}

/**
 * Opens the later carriers of a link as its first one: by the server's own TLS, or through a middlebox that ends the
 * outer TLS, where certificate and token are sent in the inner TLS only.
 */
function carriersOf(context: DialContext, opened: OpenedLink, first: Credentials, isDirect: boolean): Carriers {
  let used = first;
  const times = {
    resumeTimeoutMs: resumeTimeoutMs(context, opened),
    carrierAgeMs: () => carrierAgeMs(context, used),
  };
  if (isDirect) {
    return {
      ...times,
      redial: async (resume, signal) => {
        const again = resumeTerms(context, opened, signal);
        const dialled = await dialDirectly(context, again, (to) => dialNext(to, opened, context.hello, resume));
        used = again.credentials;
        return dialled;
      },
    };
  }
  return {
    ...times,
    prove: async (signal) => {
      const again = resumeTerms(context, opened, signal);
      const renewal = await startInnerTls(context, again, outerTrust(again.credentials), opened.link.id);
      renewal.pipe.end();
      if (renewal.answer.type !== "renewed") throw new Error("the server did not renew the agent's credential");
      used = again.credentials;
    },
    redial: async (resume, signal) => {
      const again = resumeTerms(context, opened, signal);
      return await dialViaMiddlebox(context, again, outerTrust(again.credentials), (to) =>
        dialNext(to, opened, OUTER_HELLO, resume),
      );
    },
  };
}

/** Dials the next carrier of an open link. `hello`: what it says beside the resume. */
function dialNext(
  to: CarrierDialOptions,
  { link, welcome }: OpenedLink,
  hello: Hello | OuterHello,
  resume: () => ProvenResume,
): Promise<DialledAgain> {
  const keepaliveMs = Math.min(to.keepaliveMs, welcome.keepaliveMs);
  return dialAgain({ ...to, link: link.id, keepaliveMs, hello: () => ({ ...hello, resume: resume() }) });
}

/** The context of an attempt, and of each later carrier of its link. */
export type DialContext = AgentContext & LinkContext & { readonly credentials: { current(): Credentials } };

/** Longest dial for a suspended link, ms: the grace must have time for several. */
const RESUME_TIMEOUT_MS = 5_000;
const MIN_ATTEMPTS = 3;
const MIN_RESUME_MS = 500;
/**
 * A planned carrier has this many times --handshake-timeout: the old one stays in use meanwhile, and on a slow line
 * each step of the handshake waits behind its payload, several seconds.
 */
const PLANNED_TIMES = 3;

/** A carrier is replaced this time before its certificate or token ends, ms. */
const RENEWAL_MS = 60_000;

/** The age at which a carrier that was opened with these credentials is replaced, ms. */
function carrierAgeMs({ path }: DialContext, used: Credentials): number {
  return Math.min(path.nextCarrierAgeMs(), untilRenewal(endOf(used)));
}

function resumeTimeoutMs({ options }: DialContext, { welcome }: OpenedLink): number {
  const share = Math.max(MIN_RESUME_MS, welcome.graceMs / MIN_ATTEMPTS);
  return Math.min(options.handshakeTimeoutMs, RESUME_TIMEOUT_MS, share);
}

/** The terms of a dial for an open link, with the credentials that are in the files now. */
function resumeTerms(context: DialContext, opened: OpenedLink, signal: AbortSignal): DialTerms {
  const { credentials, options } = context;
  const isPlanned = !opened.link.suspended;
  const timeoutMs = isPlanned ? PLANNED_TIMES * options.handshakeTimeoutMs : resumeTimeoutMs(context, opened);
  return { credentials: credentials.current(), timeoutMs, signal };
}

/** A renewed credential should be in the file by then, and a carrier that was opened with the old one is replaced. */
function untilRenewal(credentialsEnd: Date | undefined): number {
  if (credentialsEnd === undefined) return Number.POSITIVE_INFINITY;
  const leftMs = credentialsEnd.getTime() - Date.now() - RENEWAL_MS;
  return leftMs > 0 ? leftMs : Number.POSITIVE_INFINITY;
}

/** The agent's own part of a hello; "" = not given. */
type HelloOptions = Pick<AgentOptions, "agentId" | "cluster" | "agentIdentifiers">;

/** The hello message of a process. `program`: its name and version. */
export function helloOf({ agentId, cluster, agentIdentifiers }: HelloOptions, program: string): Hello {
  const identifiers = parseIdentifiers(agentIdentifiers);
  return {
    type: "hello",
    version: HANDSHAKE_VERSION,
    agentId,
    instance: randomUUID(),
    software: `${program} node/${buildInfo().node}`,
    features: FEATURES,
    ...(cluster !== "" && { cluster }),
    ...(!isEmpty(identifiers) && { identifiers }),
  };
}
