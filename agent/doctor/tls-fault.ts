import { X509Certificate } from "node:crypto";
import { GrpcServer, NoHandshake, NoTls } from "../../shared/link/dial-fault.ts";
import { InnerTlsFault } from "../../shared/link/inner-tls.ts";
import { type CredentialFault, printable } from "../../shared/outcomes.ts";
import { CertificateFault, UnknownIssuer } from "../../shared/tls/server-certificate.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { caExpired, chainIn, isEarly, isOver, linksIn, validityOf } from "./certificates.ts";
import { lookAt, type Seen } from "./second-look.ts";
import { type ChainLink, type Culprit, type Finding, StepFailed } from "./steps.ts";
import type { TunnelDial } from "./tunnel-steps.ts";

/** What OpenSSL says of a handshake. */
const TLS_CULPRITS: ReadonlyMap<string, Culprit> = new Map([
  ["ERR_SSL_TLSV1_UNRECOGNIZED_NAME", "unknown_name"],
  ["ERR_SSL_WRONG_VERSION_NUMBER", "no_tls"],
  ["ERR_SSL_PACKET_LENGTH_TOO_LONG", "no_tls"],
]);

/** Why the TLS outside does not come up. */
export async function tlsFault(
  error: NodeJS.ErrnoException,
  openedBy: string | undefined,
  dial: TunnelDial,
): Promise<StepFailed> {
  const handshake = error instanceof NoHandshake ? handshakeOf(error) : {};
  if ((error instanceof NoTls || error instanceof NoHandshake) && error.proxy !== undefined) {
    const { at: by, from: proxyFrom } = error.proxy;
    const culprit = error instanceof NoTls ? "no_tls" : "tls";
    return new StepFailed({ culprit, by, proxyFrom, ...handshake }, printable(error.message, 500), { cause: error });
  }
  if (error instanceof UnknownIssuer || error instanceof CertificateFault) {
    return await certificateStep(error, openedBy, dial);
  }
  const culprit = error instanceof GrpcServer ? "grpc_server" : (TLS_CULPRITS.get(error.code ?? "") ?? "tls");
  const finding = { culprit, by: dial.at, ...handshake, ...(openedBy !== undefined && { openedBy }) };
  return new StepFailed(finding, printable(error.message, 500), { cause: error });
}

/** The certificate outside is to blame: who shows it, and what time it is there, is worth a second look. */
async function certificateStep(
  error: UnknownIssuer | CertificateFault,
  openedBy: string | undefined,
  dial: TunnelDial,
): Promise<StepFailed> {
  const { chain, time, isCallersPort } = await secondLook(dial);
  if (time !== undefined) dial.onTime(time, "the answer's Date header");
  const isUnknown = error instanceof UnknownIssuer;
  const detail = isUnknown ? `a certificate of none of our CAs${shown(chain)}` : detailOf(error, chain);
  const found = (finding: Finding) => new StepFailed(finding, detail, { chain, cause: error });
  const opened = openedBy === undefined ? {} : { openedBy };
  if (isUnknown) {
    if (isCallersPort) return found({ culprit: "callers_port", by: dial.at });
    const { issuer: by, relation, kind } = error;
    const finding = { culprit: unknownBy(error, dial), by, relation };
    return found(kind === "intercepted" ? { ...finding, ...opened } : finding);
  }
  return found(endedCa(error, chain, openedBy, dial) ?? { ...findingOf(error, chain, dial), ...opened });
}

function detailOf({ message }: CertificateFault, chain: readonly ChainLink[]): string {
  return `${printable(message, 500)}${shown(chain)}`;
}

/** What is wrong with a certificate of one of our CAs. */
function findingOf(
  { kind, names, isClients }: CertificateFault,
  chain: readonly ChainLink[],
  { options, at }: TunnelDial,
) {
  return {
    culprit: kind,
    by: kind === "wrong_name" ? options.host : at,
    ...(names !== undefined && { names }),
    ...(isClients && { isClients }),
    ...lateValidity(chain),
  } satisfies Finding;
}

/** What the network has said is its cause; where that is missing, the time was over. */
function handshakeOf({ cause }: NoHandshake): Pick<Finding, "handshake"> {
  return { handshake: cause === undefined ? "silent" : "cut" };
}

/** What is shown is in time, and its authority is not: OpenSSL has the same word for both. */
function endedCa(
  { kind }: CertificateFault,
  chain: readonly ChainLink[],
  openedBy: string | undefined,
  { credentials: { ca, outerCa = [] } }: TunnelDial,
): Finding | undefined {
  if (kind !== "server_expired") return undefined;
  const isRoot = ({ subject, issuer }: ChainLink) => subject === issuer;
  if (chain.some((link, depth) => isOver(link) && (depth === 0 || !isRoot(link)))) return undefined;
  const ours = openedBy === undefined ? (ca === undefined ? [] : [ca]) : outerCa;
  const ended = linksIn(ours).find((link) => isOver(link) && chain.some(({ issuer }) => issuer === link.subject));
  return ended && caExpired(openedBy === undefined ? "--ca-cert" : "--outer-ca", ended);
}

/** Is it `--ca-cert`, or, where somebody opens TLS, whose leave is missing? */
function unknownBy({ kind }: UnknownIssuer, { rule: { innerTls }, credentials: { outerCa } }: TunnelDial): Culprit {
  if (kind === "unknown_ca") return "unknown_ca";
  if (innerTls === "never") return "inner_tls_never";
  return outerCa === undefined ? "intercepted" : "outer_ca";
}

async function secondLook({ options, open }: TunnelDial): Promise<Seen> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    return await lookAt((await open()).socket, options, signal);
  } catch {
    return { chain: [], time: undefined, isCallersPort: false }; // the first error says what there is to say
  }
}

/** Why the TLS inside does not. What outside has only a close code is said by whoever judges hellos, before any TLS. */
export function innerTlsFault(error: unknown, openedBy: string | undefined, dial: TunnelDial): StepFailed {
  const { at } = dial;
  const opened = openedBy === undefined ? {} : { openedBy };
  const detail = printable((error as Error).message, 500);
  if (error instanceof LinkRefused) {
    const isOff = error.closeCode === CloseCode.forbidden;
    const finding: Finding = isOff ? { culprit: "inner_tls_off", by: at } : refusalFinding(error);
    return new StepFailed({ ...finding, ...opened }, detail, { cause: error });
  }
  const { fault, shown: raw = [] } = error instanceof InnerTlsFault ? error : {};
  if (fault === undefined) return new StepFailed({ culprit: "inner_tls", by: at, ...opened }, detail, { cause: error });
  const chain = chainIn(raw.map((bytes) => new X509Certificate(bytes)));
  const found = (finding: Finding, detail: string) => new StepFailed(finding, detail, { chain, cause: error });
  if (fault instanceof UnknownIssuer) {
    const { issuer, relation } = fault;
    return found({ culprit: "inner_untrusted", by: issuer, relation, ...opened }, `${detail}${shown(chain)}`);
  }
  // It is the server's own, whoever opens TLS on the way.
  return found(endedCa(fault, chain, undefined, dial) ?? findingOf(fault, chain, dial), detailOf(fault, chain));
}

function shown([leaf]: readonly ChainLink[]): string {
  return leaf === undefined ? "" : `: ${leaf.subject}, signed by ${leaf.issuer}, is shown`;
}

/** Of the first that is out of its time, else of the server's own. */
function lateValidity(chain: readonly ChainLink[]): Pick<Finding, "validFrom" | "validTo"> {
  const late = chain.find((link) => isOver(link) || isEarly(link)) ?? chain[0];
  return late === undefined ? {} : validityOf(late);
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
