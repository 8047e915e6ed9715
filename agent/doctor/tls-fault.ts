import { once } from "node:events";
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { type ConnectionOptions, connect } from "node:tls";
import { sniOf } from "../../shared/address/server-name.ts";
import { version } from "../../shared/basics/program.ts";
import { DialFault, type FaultCode, isUnknownIssuer } from "../../shared/faults/faults.ts";
import { isCallersPort } from "../../shared/link/dial-faults.ts";
import { InnerTlsFault } from "../../shared/link/inner-tls.ts";
import { type CredentialFault, printable } from "../../shared/outcomes.ts";
import { CloseCode, DOCTOR, LinkRefused } from "../../shared/wire/handshake.ts";
import { carrierOptions, type DialTerms, type LinkContext } from "../uplink/open-link.ts";
import { faultOf } from "../uplink/retry.ts";
import { chainOf, firstOf } from "./certificates.ts";
import { type ChainLink, type Finding, StepFailed } from "./report.ts";

/** A dial of the doctor's: an agent's. */
export interface TunnelDial {
  /** `route.open` gives another connection to the server each time. */
  readonly context: LinkContext;
  readonly terms: DialTerms;
  /** `host:port` of the server. */
  readonly at: string;
  /** A peer sent its time, ms since 1970. */
  onTime(time: number): void;
}

/** The code of a failed dial, with what is known beside it; `otherwise`: the table has no row for the error. */
export function findingOf(error: Error, { at }: TunnelDial, otherwise: FaultCode): Finding {
  const culprit = faultOf(error) ?? otherwise;
  if (error instanceof LinkRefused && culprit === "not_admitted") return refusalFinding(error);
  const facts: Partial<Finding> = error instanceof DialFault ? error.facts : {};
  // The server is named with its port; a proxy is at fault itself.
  const by = facts.proxyFrom === undefined || facts.by === undefined ? at : facts.by;
  return { ...facts, culprit, by };
}

/** `chain`: what the peer has shown. */
export function stepFailed(finding: Finding, error: Error, seen: StepFailed["seen"] = {}): StepFailed {
  const [leaf] = seen.chain ?? [];
  const shown = leaf === undefined ? "" : `; the certificate is ${leaf.subject}, signed by ${leaf.issuer}`;
  return new StepFailed(finding, `${printable(error.message, 500)}${shown}`, seen);
}

const CERTIFICATE_FAULTS: readonly FaultCode[] = [
  "server_expired",
  "server_not_yet_valid",
  "wrong_name",
  "wrong_usage",
];

/** Why the outer TLS does not come up. `openedBy`: who opens TLS on the way, and may. */
export async function tlsFault(error: Error, openedBy: string | undefined, dial: TunnelDial): Promise<StepFailed> {
  const opened = openedBy === undefined ? {} : { openedBy };
  const isUnknown = isUnknownIssuer(error);
  if (!isUnknown && !(error instanceof DialFault && CERTIFICATE_FAULTS.includes(error.fault))) {
    return stepFailed(findingOf(error, dial, "tls"), error, opened);
  }
  // A second connection says which chain is there, and what time it is.
  const { chain, time, isCallersPort } = await secondLook(dial);
  if (time !== undefined) dial.onTime(time);
  if (!isUnknown) {
    const finding = certificateFinding(error, dial, openedBy === undefined ? "--ca-cert" : "--outer-ca");
    return stepFailed(finding, error, { ...opened, chain });
  }
  if (isCallersPort) return stepFailed({ culprit: "callers_port", by: dial.at }, error, { chain });
  return stepFailed({ ...error.facts, culprit: unknownBy(error, dial) }, error, { chain });
}

/** The fault of a certificate that one of our CAs has signed, or of the CA, whose file `option` names. */
function certificateFinding({ fault, facts }: DialFault, { at }: TunnelDial, option: string): Finding {
  const { isOfCa, ...others } = facts;
  if (isOfCa && fault === "server_expired") return { ...others, culprit: "ca_expired", by: option };
  return { ...others, culprit: fault, by: fault === "wrong_name" ? facts.by : at };
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
export function innerTlsFault(error: Error, dial: TunnelDial): StepFailed {
  if (error instanceof LinkRefused) {
    const isOff = error.closeCode === CloseCode.forbidden;
    return stepFailed(isOff ? { culprit: "inner_tls_off", by: dial.at } : refusalFinding(error), error);
  }
  const { fault, shown = [] } = error instanceof InnerTlsFault ? error : {};
  if (fault === undefined) return stepFailed({ culprit: "inner_tls", by: dial.at }, error);
  const finding: Finding = isUnknownIssuer(fault)
    ? { ...fault.facts, culprit: "inner_untrusted" }
    : certificateFinding(fault, dial, "--ca-cert");
  return stepFailed(finding, error, { chain: shown.map(firstOf) });
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

/** The party that answers in the server's place, and its time. */
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
  const { host, port, path, tls } = options;
  const secure = connect({ ...tls, socket, host, ...sniOf(host), rejectUnauthorized: false });
  secure.on("error", () => {});
  try {
    await once(secure, "secureConnect", { signal });
    const chain = chainOf(secure.getPeerX509Certificate());
    const headers = { connection: "close", "user-agent": DOCTOR_SOFTWARE };
    const asked = request({ createConnection: () => secure, host, port, path, headers, signal });
    asked.on("error", () => {}).end();
    const [answer] = (await once(asked, "response").catch(() => [])) as [IncomingMessage?];
    if (answer === undefined) return { chain, time: undefined, isCallersPort: false };
    return { chain, time: dateOf(answer.headers), isCallersPort: isCallersPort(answer) };
  } finally {
    secure.destroy();
  }
}

/** RFC 9110 §6.6.1. */
export function dateOf(headers: IncomingHttpHeaders): number | undefined {
  const time = Date.parse(headers.date ?? "");
  return Number.isNaN(time) ? undefined : time;
}
