import { X509Certificate } from "node:crypto";
import { DialFault, type FaultCode, isUnknownIssuer } from "../../shared/faults/faults.ts";
import { CallersPort } from "../../shared/link/dial-faults.ts";
import { InnerTlsFault } from "../../shared/link/inner-tls.ts";
import { type CredentialFault, printable } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { faultOf } from "../uplink/retry.ts";
import { UnseenCertificate } from "../uplink/tls-terminator.ts";
import { caExpired, chainIn, isOver, linksIn } from "./certificates.ts";
import { type ChainLink, type Finding, StepFailed } from "./report.ts";
import { lookAt, type SecondLook } from "./second-look.ts";
import type { TunnelDial } from "./tunnel-steps.ts";

/** The code of a failed dial, with what the doctor knows beside it; `otherwise`: the table has no row for the error. */
export function findingOf(
  error: Error,
  { at }: Pick<TunnelDial, "at">,
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

export function stepFailed(finding: Finding, error: Error, chain?: readonly ChainLink[]): StepFailed {
  return new StepFailed(finding, printable(error.message, 500), { ...(chain && { chain }), cause: error });
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
    return new StepFailed(finding, detailOf(error, chain), { chain, cause: error });
  }
  const detail = `a certificate of none of our CAs${shown(chain)}`;
  const found = (finding: Finding) => new StepFailed(finding, detail, { chain, cause: error });
  if (isCallersPort) return found({ culprit: "callers_port", by: dial.at });
  const finding = { ...error.facts, culprit: unknownBy(error, dial) };
  return found(error.fault === "intercepted" ? { ...finding, ...opened(openedBy) } : finding);
}

function detailOf({ message }: Error, chain: readonly ChainLink[]): string {
  return `${printable(message, 500)}${shown(chain)}`;
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
  { credentials: { ca, outerCa = [] } }: TunnelDial,
): Finding | undefined {
  if (fault !== "server_expired") return undefined;
  const isRoot = ({ subject, issuer }: ChainLink) => subject === issuer;
  if (chain.some((link, depth) => isOver(link) && (depth === 0 || !isRoot(link)))) return undefined;
  const ours = openedBy === undefined ? (ca === undefined ? [] : [ca]) : outerCa;
  const ended = linksIn(ours).find((link) => isOver(link) && chain.some(({ issuer }) => issuer === link.subject));
  return ended && caExpired(openedBy === undefined ? "--ca-cert" : "--outer-ca", ended);
}

/** Whether `--ca-cert` lacks the CA, or which option does not permit the middlebox. */
function unknownBy({ fault }: DialFault, { rule: { innerTls }, credentials: { outerCa } }: TunnelDial): FaultCode {
  if (fault === "unknown_ca") return "unknown_ca";
  if (innerTls === "never") return "inner_tls_never";
  return outerCa === undefined ? "intercepted" : "outer_ca";
}

async function secondLook({ options, open }: TunnelDial): Promise<SecondLook> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    return await lookAt((await open()).socket, options, signal);
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
  const chain = chainIn(raw.map((bytes) => new X509Certificate(bytes)));
  if (isUnknownIssuer(fault)) {
    const finding = { ...fault.facts, culprit: "inner_untrusted", ...opened(openedBy) } as const;
    return new StepFailed(finding, detailOf(error, chain), { chain, cause: error });
  }
  // It is the server's own certificate, whichever peer opens TLS on the way.
  const finding = endedCa(fault, chain, undefined, dial) ?? certificateFinding(fault, dial);
  return new StepFailed(finding, detailOf(fault, chain), { chain, cause: error });
}

function shown([leaf]: readonly ChainLink[]): string {
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
