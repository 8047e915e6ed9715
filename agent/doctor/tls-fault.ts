import { GrpcServer, NoHandshake, NoTls } from "../../shared/link/dial-fault.ts";
import { InnerTlsFault } from "../../shared/link/inner-tls.ts";
import { Intercepted } from "../../shared/link/intercepted.ts";
import { printable } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { caExpired, chainOf, isOver, linksIn, validityOf } from "./certificates.ts";
import { lookAt, type Seen } from "./look.ts";
import type { TunnelDial } from "./outer-tls.ts";
import { refusalFinding } from "./refusal.ts";
import { type ChainLink, type Culprit, type Finding, StepFailed } from "./steps.ts";

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
  "outer_ca",
  "inner_tls_never",
  "server_expired",
  "server_not_yet_valid",
  "wrong_name",
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
  const isIntercepted = error instanceof Intercepted;
  const isGrpc = error instanceof GrpcServer;
  const culprit = isGrpc
    ? "grpc_server"
    : isIntercepted
      ? intercepted(dial)
      : (TLS_CULPRITS.get(error.code ?? "") ?? "tls");
  const by = isIntercepted ? error.issuer : dial.at;
  const finding = { culprit, by, ...handshake, ...(openedBy !== undefined && { openedBy }) };
  const detail = isIntercepted ? "a certificate of none of our CAs" : printable(error.message, 500);
  const seen = ABOUT_CERTIFICATES.has(culprit) ? await secondLook(dial) : undefined;
  if (seen === undefined) return new StepFailed(finding, detail, { cause: error });
  if (seen.time !== undefined) dial.onTime(seen.time, "the answer's Date header");
  const { chain } = seen;
  if (isIntercepted && seen.isCallersPort) {
    return new StepFailed({ culprit: "callers_port", by: dial.at }, `${detail}${shown(chain)}`, {
      chain,
      cause: error,
    });
  }
  const told = (culprit === "server_expired" && endedCa(chain, openedBy, dial)) || {
    ...finding,
    ...lateValidity(chain),
  };
  return new StepFailed(told, `${detail}${shown(chain)}`, { chain, cause: error });
}

/** What the network has said is its cause; where that is missing, the time was over. */
function handshakeOf({ cause }: NoHandshake): Pick<Finding, "handshake"> {
  return { handshake: cause === undefined ? "silent" : "cut" };
}

/** What is shown is in time, and its authority is not: OpenSSL has the same word for both. */
function endedCa(
  chain: readonly ChainLink[],
  openedBy: string | undefined,
  { credentials: { ca, outerCa = [] } }: TunnelDial,
): Finding | undefined {
  const isRoot = ({ subject, issuer }: ChainLink) => subject === issuer;
  if (chain.some((link, depth) => isOver(link) && (depth === 0 || !isRoot(link)))) return undefined;
  const ours = openedBy === undefined ? (ca === undefined ? [] : [ca]) : outerCa;
  const ended = linksIn(ours).find((link) => isOver(link) && chain.some(({ issuer }) => issuer === link.subject));
  return ended && caExpired(openedBy === undefined ? "--ca-cert" : "--outer-ca", ended);
}

/** Whose leave is missing. */
function intercepted({ rule: { innerTls }, credentials: { outerCa } }: TunnelDial): Culprit {
  if (innerTls === "never") return "inner_tls_never";
  return outerCa === undefined ? "intercepted" : "outer_ca";
}

async function secondLook({ options, open }: TunnelDial): Promise<Seen | undefined> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  try {
    return await lookAt((await open()).socket, options, signal);
  } catch {
    return undefined; // the first error says what there is to say
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
  if (!(error instanceof InnerTlsFault) || error.shown === undefined) {
    return new StepFailed({ culprit: "inner_tls", by: at, ...opened }, detail, { cause: error });
  }
  const chain = chainOf(error.shown);
  const known = TLS_CULPRITS.get(error.code ?? ""); // and then it is the server's own
  const finding: Finding = known
    ? { culprit: known, by: at }
    : { culprit: "inner_untrusted", by: error.issuer, ...opened };
  const told = (known === "server_expired" && endedCa(chain, undefined, dial)) || {
    ...finding,
    ...lateValidity(chain),
  };
  return new StepFailed(told, `${detail}${shown(chain)}`, { chain, cause: error });
}

function shown([leaf]: readonly ChainLink[]): string {
  return leaf === undefined ? "" : `: ${leaf.subject}, signed by ${leaf.issuer}, is shown`;
}

/** Of the first that is out of its time, else of the server's own. */
function lateValidity(chain: readonly ChainLink[]): Pick<Finding, "validFrom" | "validTo"> {
  const late = chain.find((link) => isOver(link)) ?? chain[0];
  return late === undefined ? {} : validityOf(late);
}
