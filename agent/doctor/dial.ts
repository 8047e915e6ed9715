import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { type Dialled, type DialOptions, dialCarrier } from "../../shared/link/dial.ts";
import { Intercepted } from "../../shared/link/intercepted.ts";
import { MiddleBox } from "../../shared/link/upgrade-answer.ts";
import { printable } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { chainOf } from "./certificates.ts";
import { dateOf, lookAt, type Seen } from "./look.ts";
import { type Culprit, type Passed, StepFailed, type StepLog } from "./steps.ts";

export interface TunnelDial {
  readonly options: Omit<DialOptions, "open" | "watch">;
  /** A connection by the way out; once more for a second look. */
  open(): Promise<Socket>;
  /** How people call the server. */
  readonly at: string;
  /** Somebody has said what time it is, ms since 1970. */
  onTime(time: number, from: string): void;
}

/** TLS, upgrade and admission as an agent has them: one dial, and a step of the log for each. */
export async function dialTunnel(dial: TunnelDial, log: StepLog): Promise<Dialled> {
  let onSecure: (socket: TLSSocket) => void = () => {};
  let onAnswer: (answer: IncomingMessage) => void = () => {};
  const secure = new Promise<TLSSocket>((resolve) => {
    onSecure = resolve;
  });
  const answer = new Promise<IncomingMessage>((resolve) => {
    onAnswer = resolve;
  });
  const dialled = dialCarrier({ ...dial.options, open: () => dial.open(), watch: { onSecure, onAnswer } });
  dialled.catch(() => {}); // each step says what it is for itself
  await log.run("tls", () => tlsStep(Promise.race([secure, dialled.then(tooSoon)]), dial));
  await log.run("upgrade", () => upgradeStep(Promise.race([answer, dialled.then(tooSoon)]), dialled, dial));
  return log.run("admission", () => admissionStep(dialled, dial));
}

/** A dial that is done before its steps are. */
function tooSoon(): never {
  throw new Error("a step was skipped");
}

async function tlsStep(secure: Promise<TLSSocket>, dial: TunnelDial): Promise<Passed<undefined>> {
  try {
    const socket = await secure;
    const chain = chainOf(socket);
    const [leaf] = chain;
    const detail = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
    return { value: undefined, detail, chain };
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, dial);
  }
}

/** What OpenSSL says of a certificate or of a handshake. */
const TLS_CULPRITS: ReadonlyMap<string, Culprit> = new Map([
  ["CERT_HAS_EXPIRED", "server_expired"],
  ["CERT_NOT_YET_VALID", "server_not_yet_valid"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "wrong_name"],
  ["ERR_SSL_TLSV1_UNRECOGNIZED_NAME", "unknown_name"],
  ["ERR_SSL_WRONG_VERSION_NUMBER", "no_tls"],
  ["ERR_SSL_PACKET_LENGTH_TOO_LONG", "no_tls"],
]);

/** Who shows it, and until when it is good, is worth a second look. */
const ABOUT_CERTIFICATES: ReadonlySet<Culprit> = new Set([
  "intercepted",
  "server_expired",
  "server_not_yet_valid",
  "wrong_name",
]);

async function tlsFault(error: NodeJS.ErrnoException, dial: TunnelDial): Promise<StepFailed> {
  const culprit = error instanceof Intercepted ? "intercepted" : (TLS_CULPRITS.get(error.code ?? "") ?? "tls");
  const by = error instanceof Intercepted ? error.issuer : dial.at;
  const detail = error instanceof Intercepted ? "a certificate of none of our CAs" : printable(error.message, 300);
  const seen = ABOUT_CERTIFICATES.has(culprit) ? await secondLook(dial) : undefined;
  if (seen === undefined) return new StepFailed({ culprit, by }, detail, { cause: error });
  if (seen.time !== undefined) dial.onTime(seen.time, "the answer's Date header");
  const { chain } = seen;
  const [leaf] = chain;
  const shown = leaf === undefined ? "" : `: ${leaf.subject}, signed by ${leaf.issuer}, is shown`;
  const late = chain.find(({ validTo }) => Date.parse(validTo) < Date.now()) ?? leaf;
  const validity = late && { validFrom: Date.parse(late.validFrom), validTo: Date.parse(late.validTo) };
  return new StepFailed({ culprit, by, ...validity }, `${detail}${shown}`, { chain, cause: error });
}

async function secondLook({ options, open }: TunnelDial): Promise<Seen | undefined> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    return await lookAt(await open(), options, signal);
  } catch {
    return undefined; // the first error says what there is to say
  }
}

async function upgradeStep(
  answered: Promise<IncomingMessage>,
  dialled: Promise<Dialled>,
  dial: TunnelDial,
): Promise<Passed<undefined>> {
  try {
    const answer = await answered;
    const { statusCode } = answer;
    const time = dateOf(answer);
    if (time !== undefined) dial.onTime(time, "the answer's Date header");
    if (statusCode !== 101) await dialled; // rejects with what the answer says
    return { value: undefined, detail: `${statusCode} Switching Protocols${boxesIn(answer)}` };
  } catch (error) {
    throw upgradeFault(error as Error, dial);
  }
}

/** Boxes on the way put their names into answers. */
function boxesIn({ headers }: IncomingMessage): string {
  const { via, server } = headers;
  return printable(`${server ? `, server "${server}"` : ""}${via ? `, via "${via}"` : ""}`, 150);
}

function upgradeFault(error: Error, { at, options }: TunnelDial): StepFailed {
  const failed = (culprit: Culprit, by = at) =>
    new StepFailed({ culprit, by }, printable(error.message, 500), { cause: error });
  if (error instanceof MiddleBox) return failed(error.kind);
  if (!(error instanceof LinkRefused)) return failed("no_answer");
  switch (error.status) {
    case 400: // a server that was asked for half an upgrade
      return failed("upgrade_stripped");
    case 404:
      return failed("wrong_path", options.path);
    default:
      return failed("not_admitted", error.reason);
  }
}

async function admissionStep(dialled: Promise<Dialled>, { at, options }: TunnelDial): Promise<Passed<Dialled>> {
  try {
    const value = await dialled;
    const { serverId, graceMs } = value.welcome;
    const resumable = graceMs === 0 ? "" : `, which keeps it for ${graceMs / 1_000} s when a connection is lost`;
    return { value, detail: `"${options.hello().agentId}" is welcome at server "${serverId}"${resumable}` };
  } catch (error) {
    const by = error instanceof LinkRefused ? error.reason : at;
    const culprit = error instanceof LinkRefused ? "not_admitted" : "no_answer";
    throw new StepFailed({ culprit, by }, printable((error as Error).message, 500), { cause: error });
  }
}
