import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { sniOf } from "../../shared/address/server-name.ts";
import { version } from "../../shared/basics/program.ts";
import { DialFault, type FaultCode, isUnknownIssuer } from "../../shared/faults/faults.ts";
import { CallersPort, isCallersPort } from "../../shared/link/dial-faults.ts";
import { InnerTlsFault } from "../../shared/link/inner-tls.ts";
import { type CredentialFault, printable } from "../../shared/outcomes.ts";
import { CloseCode, DOCTOR, LinkRefused } from "../../shared/wire/handshake.ts";
import { carrierOptions, type DialTerms, type LinkContext } from "../uplink/open-link.ts";
import { faultOf } from "../uplink/retry.ts";
import { UnseenCertificate } from "../uplink/tls-terminator.ts";
import { caExpired, chainOf, firstOf, isOver, linksIn } from "./certificates.ts";
import { type ChainLink, type Finding, StepFailed } from "./report.ts";

/** A dial of the doctor's: an agent's. */
export interface TunnelDial {
  /** `route.open` gives another connection to the server each time. */
  readonly context: LinkContext;
  readonly terms: DialTerms;
  /** `host:port` of the server. */
  readonly at: string;
  /** A peer sent its time, ms since 1970. */
  onTime(time: number, from: string): void;
}

/** The code of a failed dial, with what the doctor knows beside it; `otherwise`: the table has no row for the error. */
export function findingOf(
  error: Error,
  { at }: TunnelDial,
  { otherwise, openedBy }: { readonly otherwise: FaultCode; readonly openedBy?: string | undefined },
): Finding {
  if (error instanceof LinkRefused && !(error instanceof UnseenCertificate || error instanceof CallersPort)) {
    return { ...refusalFinding(error), ...opened(openedBy) };
  }
  const culprit = faultOf(error) ?? otherwise;
  const facts: Partial<Finding> = error instanceof DialFault ? error.facts : {};
  // The server is named with its port; a proxy is at fault itself.
  const by = facts.proxyFrom === undefined || facts.by === undefined ? at : facts.by;
  return { ...facts, culprit, by, ...opened(openedBy) };
}

export function opened(openedBy: string | undefined): { readonly openedBy?: string } {
  return openedBy === undefined ? {} : { openedBy };
}

/** `chain`: what the peer has shown. */
export function stepFailed(finding: Finding, error: Error, chain?: readonly ChainLink[]): StepFailed {
  const detail = `${printable(error.message, 500)}${shown(chain)}`;
  return new StepFailed(finding, detail, { ...(chain && { chain }), cause: error });
}

/** Why the outer TLS does not come up. */
export async function tlsFault(error: Error, openedBy: string | undefined, dial: TunnelDial): Promise<StepFailed> {
  if (error instanceof DialFault && CERTIFICATE_FAULTS.has(error.fault)) {
    return await certificateStep(error, openedBy, dial);
  }
  return stepFailed(findingOf(error, dial, { otherwise: "tls", openedBy }), error);
}

const CERTIFICATE_FAULTS: ReadonlySet<FaultCode> = new Set([
  ...(["unknown_ca", "intercepted", "server_expired", "server_not_yet_valid", "wrong_name", "wrong_usage"] as const),
]);

/** The certificate is at fault: a second connection says which chain is there, and what time it is. */
async function certificateStep(error: DialFault, openedBy: string | undefined, dial: TunnelDial): Promise<StepFailed> {
  const { chain, time, isCallersPort } = await secondLook(dial);
  if (time !== undefined) dial.onTime(time, "the answer's Date header");
  if (!isUnknownIssuer(error)) {
    const finding = endedCa(error, chain, openedBy, dial) ?? {
      ...certificateFinding(error, dial),
      ...opened(openedBy),
    };
    return stepFailed(finding, error, chain);
  }
  const detail = `a certificate of none of our CAs${shown(chain)}`;
  const found = (finding: Finding) => new StepFailed(finding, detail, { chain, cause: error });
  if (isCallersPort) return found({ culprit: "callers_port", by: dial.at });
  const finding = { ...error.facts, culprit: unknownBy(error, dial) };
  return found(error.fault === "intercepted" ? { ...finding, ...opened(openedBy) } : finding);
}

/** What is wrong with a certificate of one of our CAs. */
function certificateFinding({ fault: culprit, facts }: DialFault, { at }: TunnelDial): Finding {
  return { ...facts, culprit, by: culprit === "wrong_name" ? facts.by : at };
}

/** The certificate is valid now, and its CA is not: OpenSSL has one code for both. */
function endedCa(
  { fault }: DialFault,
  chain: readonly ChainLink[],
  openedBy: string | undefined,
  { terms: { credentials } }: TunnelDial,
): Finding | undefined {
  if (fault !== "server_expired") return undefined;
  const isRoot = ({ subject, issuer }: ChainLink) => subject === issuer;
  if (chain.some((link, depth) => isOver(link) && (depth === 0 || !isRoot(link)))) return undefined;
  const { ca, outerCa = [] } = credentials;
  const ours = openedBy === undefined ? (ca === undefined ? [] : [ca]) : outerCa;
  const ended = linksIn(ours).find((link) => isOver(link) && chain.some(({ issuer }) => issuer === link.subject));
  return ended && caExpired(openedBy === undefined ? "--ca-cert" : "--outer-ca", ended);
}

/** Whether `--ca-cert` lacks the CA, or which option does not permit the middlebox. */
function unknownBy({ fault }: DialFault, { context: { options }, terms }: TunnelDial): FaultCode {
  if (fault === "unknown_ca") return "unknown_ca";
  if (options.innerTls === "never") return "inner_tls_never";
  return terms.credentials.outerCa === undefined ? "intercepted" : "outer_ca";
}

async function secondLook({ context, terms }: TunnelDial): Promise<SecondLook> {
  const options = carrierOptions(context, terms);
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    return await lookAt((await options.open(signal)).socket, options, signal);
  } catch {
    return { chain: [], time: undefined, isCallersPort: false }; // the first error says what there is to say
  }
}

/**
 * Why inner TLS does not come up. A close code outside of it is the server's answer to the hello, before any inner TLS.
 */
export function innerTlsFault(error: Error, openedBy: string | undefined, dial: TunnelDial): StepFailed {
  if (error instanceof LinkRefused) {
    const isOff = error.closeCode === CloseCode.forbidden;
    const finding: Finding = isOff ? { culprit: "inner_tls_off", by: dial.at } : refusalFinding(error);
    return stepFailed({ ...finding, ...opened(openedBy) }, error);
  }
  const { fault, shown: raw = [] } = error instanceof InnerTlsFault ? error : {};
  if (fault === undefined) return stepFailed({ culprit: "inner_tls", by: dial.at, ...opened(openedBy) }, error);
  const chain = raw.map(firstOf);
  if (isUnknownIssuer(fault)) {
    const finding = { ...fault.facts, culprit: "inner_untrusted", ...opened(openedBy) } as const;
    return stepFailed(finding, error, chain);
  }
  // It is the server's own certificate, whichever peer opens TLS on the way.
  const finding = endedCa(fault, chain, undefined, dial) ?? certificateFinding(fault, dial);
  return stepFailed(finding, fault, chain);
}

function shown([leaf]: readonly ChainLink[] = []): string {
  return leaf === undefined ? "" : `: ${leaf.subject}, signed by ${leaf.issuer}, is shown`;
}

/** By the server's clock, the certificate or token is out of its validity period. */
const OUT_OF_TIME: Readonly<Partial<Record<CredentialFault, Finding["outOfTime"]>>> = {
  certificate_expired: "ended",
  token_expired: "ended",
  certificate_not_yet_valid: "early",
  token_not_yet_valid: "early",
};

/** The server's refusal, in its own words. The step `clock` compares the clocks. */
export function refusalFinding({ reason, fault }: LinkRefused): Finding {
  const outOfTime = fault && OUT_OF_TIME[fault];
  return { culprit: "not_admitted", by: reason, ...(outOfTime && { outOfTime }) };
}

/** How a doctor names itself to a server: in its hello, and as the User-Agent of its second look. */
export const DOCTOR_SOFTWARE = `${DOCTOR}/${version()}`;

export interface LookOptions {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly tls: ConnectionOptions;
}

/** Who answers in the server's place, and what time it is there. */
export interface SecondLook {
  readonly chain: readonly ChainLink[];
  /** Of the answer's Date header, ms since 1970. */
  readonly time: number | undefined;
  /** A culvert server's port for callers has answered. */
  readonly isCallersPort: boolean;
}

/**
 * A second look where the certificate was not good: the peer is asked for the page that an agent asks for. It sees
 * nothing of ours: neither certificate nor token.
 */
export async function lookAt(socket: Socket, options: LookOptions, signal: AbortSignal): Promise<SecondLook> {
  const { host, tls } = options;
  const secure = connect({ ...tls, socket, host, ...sniOf(host), rejectUnauthorized: false });
  const onAbort = (): void => void secure.destroy(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort(); // the way there took all the time
  try {
    await new Promise((resolve, reject) =>
      secure.once("secureConnect", resolve).on("error", reject).once("close", reject),
    );
    const chain = chainOf(secure.getPeerX509Certificate());
    const answer = await answerOf(secure, options);
    return {
      chain,
      time: answer && dateOf(answer.headers),
      isCallersPort: answer !== undefined && isCallersPort(answer),
    };
  } finally {
    signal.removeEventListener("abort", onAbort);
    secure.destroy();
  }
}

/** `undefined`: nothing came that is one. */
async function answerOf(secure: TLSSocket, { host, port, path }: LookOptions): Promise<IncomingMessage | undefined> {
  const answer = await new Promise<IncomingMessage | undefined>((resolve) => {
    const headers = { connection: "close", "user-agent": DOCTOR_SOFTWARE };
    const asked = request({ createConnection: () => secure, host, port, path, headers });
    asked.once("response", resolve).on("error", () => resolve(undefined));
    asked.end();
  });
  return answer?.resume();
}

/** RFC 9110 §6.6.1. */
export function dateOf(headers: IncomingHttpHeaders): number | undefined {
  const time = Date.parse(headers.date ?? "");
  return Number.isNaN(time) ? undefined : time;
}
