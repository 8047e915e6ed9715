import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { deferred } from "../../shared/basics/promises.ts";
import { revealsSecret } from "../../shared/basics/text.ts";
import { isUnknownIssuer } from "../../shared/faults/faults.ts";
import {
  type CarrierDialOptions,
  type Dialled,
  type DialledOuter,
  dialCarrier,
  dialOuter,
  probeServer,
} from "../../shared/link/dial.ts";
import type { InnerWelcome } from "../../shared/link/inner-pipe.ts";
import { dialInner, type InnerTls } from "../../shared/link/inner-tls.ts";
import { Link } from "../../shared/link/link.ts";
import { printable } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import { requireWelcome, sendHello } from "../uplink/attempt.ts";
import { dialMiddlebox, dialServer, dialTerminators, middleboxCa } from "../uplink/tls-terminator.ts";
import { type ChainLink, chainOf } from "./certificates.ts";
import type { Passed, StepFailed, StepLog } from "./report.ts";
import { dateOf, findingOf, innerTlsFault, opened, stepFailed, type TunnelDial, tlsFault } from "./tls-fault.ts";

type Started =
  | { readonly kind: "outside"; readonly done: Promise<Dialled> }
  | { readonly kind: "inside"; readonly done: Promise<DialledOuter> };

/** A dial whose TLS is up, and its later results. */
export type OpenDial = Started & {
  readonly answer: Promise<IncomingMessage>;
  /** The issuer of a middlebox that opens TLS; absent: the server itself ends it. */
  readonly openedBy: string | undefined;
};

/** The outer TLS: an agent's dial, to the terminator that an agent would use. */
async function outerTls(dial: TunnelDial): Promise<Passed<OpenDial>> {
  const { rule, credentials } = dial;
  let openedBy: string | undefined;
  try {
    if (rule.innerTls === "always") openedBy = await middleboxIssuer(dial);
    return await dialTerminators(
      rule,
      credentials,
      (terminator) => secured(dial, openedBy, terminator === "server" ? outside : inside),
      (_terminator, { facts }) => {
        openedBy = facts.by;
      },
    );
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, openedBy, dial);
  }
}

/** With --inner-tls=always an agent does not ask which peer ends TLS, but the report should say it. */
async function middleboxIssuer({ options, credentials: { ca } }: TunnelDial): Promise<string | undefined> {
  try {
    await probeServer({ ...options, tls: { ...options.tls, ca } });
    return undefined;
  } catch (error) {
    if (isUnknownIssuer(error)) return error.facts.by;
    throw error;
  }
}

type StartDial = (dial: TunnelDial, to: CarrierDialOptions) => Started;

const outside: StartDial = ({ rule, credentials, hello }, to) => ({
  kind: "outside",
  done: dialServer(to, rule, credentials, (ready) => dialCarrier({ ...ready, hello: () => hello })),
});

const inside: StartDial = ({ rule, credentials }, to) => ({
  kind: "inside",
  done: dialMiddlebox(to, middleboxCa(rule, credentials), dialOuter),
});

async function secured(dial: TunnelDial, openedBy: string | undefined, start: StartDial): Promise<Passed<OpenDial>> {
  const { promise: answer, resolve: onAnswer } = deferred<IncomingMessage>();
  const { started, socket } = await new Promise<{ started: Started; socket: TLSSocket }>((resolve, reject) => {
    const onSecure = (socket: TLSSocket): void => resolve({ started, socket });
    const started = start(dial, { ...dial.options, watch: { onSecure, onAnswer } });
    started.done.catch(reject); // later steps explain it
  });
  const { chain, words } = shownIn(socket);
  const value: OpenDial = { ...started, answer, openedBy };
  if (openedBy === undefined) return { value, detail: words, chain };
  return { value, detail: `opened by "${openedBy}", whom --outer-ca knows: ${words}`, chain, openedBy };
}

/** What a TLS connection shows: its version, and the peer's certificate. */
function shownIn(socket: TLSSocket): { readonly chain: readonly ChainLink[]; readonly words: string } {
  const chain = chainOf(socket.getPeerX509Certificate());
  const [leaf] = chain;
  const words = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
  return { chain, words };
}

/** A link that the server has welcomed, and what the session runs on. */
export interface Welcomed {
  readonly link: Link;
  /** The link, or the inner TLS over it. */
  readonly pipe: Transport;
  readonly welcome: Pick<InnerWelcome, "initialWindow" | "freshWindow">;
}

/** Dials as an agent does, and adds a step for TLS, upgrade, inner TLS and admission. */
export async function dialTunnel(dial: TunnelDial, log: StepLog): Promise<Welcomed> {
  const openDial = await log.run("tls", () => outerTls(dial));
  await log.run("upgrade", () => upgradeStep(openDial, dial));
  return openDial.kind === "outside" ? admittedOutside(openDial, dial, log) : admittedInside(openDial, dial, log);
}

async function upgradeStep(openDial: OpenDial, dial: TunnelDial): Promise<Passed<undefined>> {
  const { answer: answered, done } = openDial;
  try {
    const answer = await Promise.race([answered, done.then(tooSoon)]);
    const { statusCode } = answer;
    const time = dateOf(answer);
    if (time !== undefined) dial.onTime(time, "the answer's Date header");
    if (statusCode !== 101) await done; // rejects with what the answer says
    return {
      value: undefined,
      detail: `${statusCode} Switching Protocols${middleboxNames(answer.headers, dial.credentials.token?.text)}`,
    };
  } catch (error) {
    throw upgradeFault(error as Error, openDial, dial);
  }
}

/** A dial cannot end before its answer. */
function tooSoon(): never {
  throw new Error("a step was skipped");
}

function upgradeFault(error: Error, { kind, openedBy }: OpenDial, dial: TunnelDial): StepFailed {
  const isRefusal = error instanceof LinkRefused;
  // Outside of inner TLS the agent sends no credential, and a server without inner TLS misses it.
  if (isRefusal && error.status === 401 && kind === "inside") {
    return stepFailed({ culprit: "inner_tls_off", by: dial.at, ...opened(openedBy) }, error);
  }
  if (isRefusal && error.status === 404) {
    return stepFailed({ culprit: "wrong_path", by: dial.options.path, ...opened(openedBy) }, error);
  }
  return stepFailed(findingOf(error, dial, { otherwise: "no_answer", openedBy }), error);
}

async function admittedOutside(
  { done }: OpenDial & { readonly kind: "outside" },
  dial: TunnelDial,
  log: StepLog,
): Promise<Welcomed> {
  log.skip("inner tls", dial.rule.innerTls === "never" ? "--inner-tls is never" : "nobody opens TLS");
  const { carrier, welcome, remote } = await log.run("admission", () =>
    admissionStep(done, ({ welcome }) => welcome, dial),
  );
  const link = new Link(welcome.link, remote, carrier, { graceMs: 0, replayBytes: dial.replayBytes });
  return { link, pipe: link, welcome };
}

/** Agent and server prove themselves to each other in inner TLS over the link. */
async function admittedInside(
  { done, openedBy }: OpenDial & { readonly kind: "inside" },
  dial: TunnelDial,
  log: StepLog,
): Promise<Welcomed> {
  const { carrier, remote } = await done;
  const link = new Link("", remote, carrier, { graceMs: 0, replayBytes: dial.replayBytes });
  const { pipe } = await log.run("inner tls", () => innerTlsStep(link, openedBy, dial));
  const greeting = sendHello(pipe, dial, AbortSignal.timeout(dial.options.timeoutMs)).then((answer) =>
    requireWelcome(answer, link),
  );
  const welcome = await log.run("admission", () => admissionStep(greeting, (words) => words, dial));
  link.id = welcome.link;
  carrier.setKeepalive(Math.min(dial.options.keepaliveMs, welcome.keepaliveMs));
  return { link, pipe, welcome };
}

async function innerTlsStep(link: Link, openedBy: string | undefined, dial: TunnelDial): Promise<Passed<InnerTls>> {
  const { options, credentials } = dial;
  const { host, timeoutMs } = options;
  const { ca, cert, key } = credentials;
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const value = await dialInner(link, { host, tls: { ca, cert, key }, timeoutMs, signal });
    const { chain, words } = shownIn(value.socket);
    return { value, detail: words, chain };
  } catch (error) {
    throw innerTlsFault(error as Error, openedBy, dial);
  }
}

/** The server's answer to the hello. `welcomeIn` finds the welcome in it. */
async function admissionStep<T>(
  greeted: Promise<T>,
  welcomeIn: (value: T) => Pick<InnerWelcome, "serverId" | "graceMs">,
  dial: TunnelDial,
): Promise<Passed<T>> {
  try {
    const value = await greeted;
    const { serverId, graceMs } = welcomeIn(value);
    const resumable = graceMs === 0 ? "" : `, which keeps it for ${graceMs / 1_000} s when a connection is lost`;
    const server = printable(serverId, 100);
    return { value, detail: `"${dial.hello.agentId}" is welcome at server "${server}"${resumable}` };
  } catch (error) {
    throw stepFailed(findingOf(error as Error, dial, { otherwise: "no_answer" }), error as Error);
  }
}

/** Maximum length of each name: a middlebox may write more than a line of a report holds. */
const MAX_NAME = 60;

/**
 * Middleboxes on the way put their names into answers; a culvert server writes neither `Server` nor `Via`. Pure.
 * `secret`: what was sent in confidence, and may come back.
 */
export function middleboxNames(headers: IncomingHttpHeaders, secret = ""): string {
  return ["server", "via"].map((field) => named(field, String(headers[field] ?? ""), secret)).join("");
}

function named(field: string, text: string, secret: string): string {
  const name = revealsSecret(text, secret) ? "(not shown: it repeats our token)" : printable(text, MAX_NAME);
  return name === "" ? "" : `, ${field} "${name}"`;
}
