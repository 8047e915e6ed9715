import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { deferred } from "../../shared/basics/promises.ts";
import type { Hello, InnerWelcome, Renewed } from "../../shared/link/control.ts";
import {
  type CarrierDialOptions,
  type Dialled,
  type DialledOuter,
  dialCarrier,
  type Passage,
  probeServer,
} from "../../shared/link/dial.ts";
import { GrpcServer } from "../../shared/link/dial-fault.ts";
import { dialInner, type InnerTls } from "../../shared/link/inner-tls.ts";
import { Link } from "../../shared/link/link.ts";
import { CallersPort, MiddleBox } from "../../shared/link/upgrade-answer.ts";
import { printable } from "../../shared/outcomes.ts";
import { UnknownIssuer } from "../../shared/tls/server-certificate.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { Credentials } from "../uplink/credentials.ts";
import {
  dialMiddlebox,
  dialServer,
  dialTerminators,
  middleboxCa,
  type TerminatorRule,
  UnseenCertificate,
} from "../uplink/tls-terminator.ts";
import { sendHello } from "../uplink/via-middlebox.ts";
import { chainOf } from "./certificates.ts";
import { boxesIn, dateOf } from "./second-look.ts";
import { type Culprit, type Finding, type Passed, StepFailed, type StepLog } from "./steps.ts";
import { innerTlsFault, refusalFinding, tlsFault } from "./tls-fault.ts";

/** A link that the server has welcomed. */
export interface Welcomed {
  readonly link: Link;
  /** What the session goes over: the link, or the inner TLS over it. */
  readonly pipe: Transport;
  readonly welcome: Pick<InnerWelcome, "initialWindow" | "freshWindow">;
}

/** TLS, upgrade, inner TLS and admission as an agent has them, and a step of the log for each. */
export async function dialTunnel(dial: TunnelDial, log: StepLog): Promise<Welcomed> {
  const underway = await log.run("tls", () => outerTls(dial));
  await log.run("upgrade", () => upgradeStep(underway, dial));
  return underway.kind === "outside" ? admittedOutside(underway, dial, log) : admittedInside(underway, dial, log);
}

async function upgradeStep(underway: Underway, dial: TunnelDial): Promise<Passed<undefined>> {
  const { answer: answered, done } = underway;
  try {
    const answer = await Promise.race([answered, done.then(tooSoon)]);
    const { statusCode } = answer;
    const time = dateOf(answer);
    if (time !== undefined) dial.onTime(time, "the answer's Date header");
    if (statusCode !== 101) await done; // rejects with what the answer says
    return {
      value: undefined,
      detail: `${statusCode} Switching Protocols${boxesIn(answer.headers, dial.credentials.token?.text)}`,
    };
  } catch (error) {
    throw upgradeFault(error as Error, underway, dial);
  }
}

/** A dial that is done before its steps are. */
function tooSoon(): never {
  throw new Error("a step was skipped");
}

function upgradeFault(error: Error, { kind, openedBy }: Underway, { at, options }: TunnelDial): StepFailed {
  const found = (finding: Finding) =>
    new StepFailed({ ...finding, ...(openedBy !== undefined && { openedBy }) }, printable(error.message, 500), {
      cause: error,
    });
  const failed = (culprit: Culprit, by = at) => found({ culprit, by });
  if (error instanceof MiddleBox) return failed(error.kind);
  if (error instanceof UnseenCertificate) return failed("certificate_unseen");
  if (error instanceof CallersPort) return failed("callers_port");
  if (error instanceof GrpcServer) return failed("grpc_server");
  if (!(error instanceof LinkRefused)) return failed("no_answer");
  switch (error.status) {
    case 401: // nothing is shown outside of inner TLS, and it is missed
      return kind === "inside" ? failed("inner_tls_off") : found(refusalFinding(error));
    case 404:
      return failed("wrong_path", options.path);
    default:
      return found(refusalFinding(error));
  }
}

async function admittedOutside(
  { done }: Underway & { readonly kind: "outside" },
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

/** The TLS outside ends in between, or may: the server proves itself to us, and we to it, in a TLS over the link. */
async function admittedInside(
  { done, openedBy }: Underway & { readonly kind: "inside" },
  dial: TunnelDial,
  log: StepLog,
): Promise<Welcomed> {
  const { carrier, remote } = await done;
  const link = new Link("", remote, carrier, { graceMs: 0, replayBytes: dial.replayBytes });
  const { pipe } = await log.run("inner tls", () => innerTlsStep(link, openedBy, dial));
  const greeting = sendHello(pipe, dial, AbortSignal.timeout(dial.options.timeoutMs)).then(mustWelcome);
  const welcome = await log.run("admission", () => admissionStep(greeting, (words) => words, dial));
  link.assignId(welcome.link, 0);
  carrier.setKeepalive(Math.min(dial.options.keepaliveMs, welcome.keepaliveMs));
  return { link, pipe, welcome };
}

function mustWelcome(answer: InnerWelcome | Renewed): InnerWelcome {
  if (answer.type !== "welcome") throw new Error("the server has not welcomed us inside the inner TLS");
  return answer;
}

async function innerTlsStep(link: Link, openedBy: string | undefined, dial: TunnelDial): Promise<Passed<InnerTls>> {
  const { options, credentials } = dial;
  const { host, timeoutMs } = options;
  const { ca, cert, key } = credentials;
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const value = await dialInner(link, { host, tls: { ca, cert, key }, timeoutMs, signal });
    const chain = chainOf(value.socket.getPeerX509Certificate());
    const [leaf] = chain;
    const words = `${value.socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}`;
    return { value, detail: `${words}, valid until ${leaf?.validTo}`, chain };
  } catch (error) {
    throw innerTlsFault(error, openedBy, dial);
  }
}

/** What the server says to the hello; `welcomeIn`: where its welcome is in what was got. */
async function admissionStep<T>(
  greeted: Promise<T>,
  welcomeIn: (value: T) => Pick<InnerWelcome, "serverId" | "graceMs">,
  { at, hello }: TunnelDial,
): Promise<Passed<T>> {
  try {
    const value = await greeted;
    const { serverId, graceMs } = welcomeIn(value);
    const resumable = graceMs === 0 ? "" : `, which keeps it for ${graceMs / 1_000} s when a connection is lost`;
    const server = printable(serverId, 100);
    return { value, detail: `"${hello.agentId}" is welcome at server "${server}"${resumable}` };
  } catch (error) {
    throw new StepFailed(admissionFinding(error, at), printable((error as Error).message, 500), { cause: error });
  }
}

function admissionFinding(error: unknown, at: string): Finding {
  if (error instanceof UnseenCertificate) return { culprit: "certificate_unseen", by: at };
  if (error instanceof LinkRefused) return refusalFinding(error);
  return { culprit: error instanceof MiddleBox ? error.kind : "no_answer", by: at };
}

export interface TunnelDial {
  readonly options: Omit<CarrierDialOptions, "open" | "watch">;
  readonly hello: Hello;
  readonly credentials: Credentials;
  readonly rule: TerminatorRule;
  /** Bytes that a link keeps. */
  readonly replayBytes: number;
  /** A connection by the way out; another one each time. */
  open(): Promise<Passage>;
  /** How people call the server. */
  readonly at: string;
  /** Somebody has said what time it is, ms since 1970. */
  onTime(time: number, from: string): void;
}

type Started =
  | { readonly kind: "outside"; readonly done: Promise<Dialled> }
  | { readonly kind: "inside"; readonly done: Promise<DialledOuter> };

/** A dial whose TLS stands, and what comes of it. */
export type Underway = Started & {
  readonly answer: Promise<IncomingMessage>;
  /** Who opens TLS on the way. */
  readonly openedBy: string | undefined;
};

/** Where TLS ends, and the dial that an agent makes there. */
export async function outerTls(dial: TunnelDial): Promise<Passed<Underway>> {
  const { rule, credentials } = dial;
  let openedBy: string | undefined;
  try {
    if (rule.innerTls === "always") openedBy = await opener(dial);
    return await dialTerminators(
      rule,
      credentials,
      (end) => secured(dial, openedBy, end === "server" ? outside : inside),
      (_end, { issuer }) => {
        openedBy = issuer;
      },
    );
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, openedBy, dial);
  }
}

/** Where everybody gets inner TLS an agent does not ask who stands there; a report should say it. */
async function opener({ options, credentials: { ca }, open }: TunnelDial): Promise<string | undefined> {
  try {
    await probeServer({ ...options, open, tls: { ...options.tls, ca } });
    return undefined;
  } catch (error) {
    if (error instanceof UnknownIssuer) return error.issuer;
    throw error;
  }
}

type Dial = (dial: TunnelDial, to: CarrierDialOptions) => Started;

const outside: Dial = ({ rule, credentials, hello }, to) => ({
  kind: "outside",
  done: dialServer(to, rule, credentials, (ready) => dialCarrier({ ...ready, hello: () => hello })),
});

const inside: Dial = ({ rule, credentials }, to) => ({
  kind: "inside",
  done: dialMiddlebox(to, middleboxCa(rule, credentials)),
});

async function secured(dial: TunnelDial, openedBy: string | undefined, start: Dial): Promise<Passed<Underway>> {
  const { promise: answer, resolve: onAnswer } = deferred<IncomingMessage>();
  const { started, socket } = await new Promise<{ started: Started; socket: TLSSocket }>((resolve, reject) => {
    const onSecure = (socket: TLSSocket): void => resolve({ started, socket });
    const started = start(dial, { ...dial.options, open: () => dial.open(), watch: { onSecure, onAnswer } });
    started.done.catch(reject); // later steps say what it is to them
  });
  const chain = chainOf(socket.getPeerX509Certificate());
  const [leaf] = chain;
  const value: Underway = { ...started, answer, openedBy };
  const words = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
  if (openedBy === undefined) return { value, detail: words, chain };
  return { value, detail: `opened by "${openedBy}", whom --outer-ca knows: ${words}`, chain, openedBy };
}
