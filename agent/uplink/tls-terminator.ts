import { type DialFault, isUnknownIssuer } from "../../shared/faults/faults.ts";
import { type CarrierDialOptions, probeServer } from "../../shared/link/dial.ts";
import { wellKnownAuthorities } from "../../shared/tls/authorities.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { AgentOptions } from "../context/options.ts";
import type { Credentials } from "./credentials.ts";

/**
 * Which peer may end the outer TLS, and what the agent shows to it: the one place that decides by `--inner-tls` and
 * `--outer-ca`. The agent and the doctor dial by it.
 *
 * ```
 *  --inner-tls  --outer-ca
 *  never        any         the server
 *  auto         absent      the server
 *  auto         given       the server; if another peer answers, a middlebox of --outer-ca
 *  always       any         a middlebox: any peer of --ca-cert or --outer-ca, the server among them
 * ```
 * The server proves itself by `--ca-cert` and gets certificate or token. A middlebox gets nothing: everything goes
 * through the inner TLS over its link.
 */
export type TlsTerminator = "server" | "middlebox";

export interface TerminatorRule {
  readonly options: { readonly innerTls: AgentOptions["innerTls"] };
  /** `intercepted`: the last dial found another peer than the server. */
  readonly path: { readonly intercepted: boolean };
}

/** The order of tries: first what worked last, because a failed try costs a handshake. */
function terminatorsToTry(
  { options: { innerTls }, path }: TerminatorRule,
  { outerCa }: Credentials,
): readonly [TlsTerminator, TlsTerminator?] {
  if (innerTls === "always") return ["middlebox"];
  if (innerTls === "never" || outerCa === undefined) return ["server"];
  return path.intercepted ? ["middlebox", "server"] : ["server", "middlebox"];
}

/**
 * Dials the first terminator, and the second where another peer answers; `onOther` gets that peer's certificate fault.
 */
export async function dialTerminators<T>(
  rule: TerminatorRule,
  credentials: Credentials,
  dial: (terminator: TlsTerminator) => Promise<T>,
  onOther: (terminator: TlsTerminator, fault: DialFault) => void,
): Promise<T> {
  const [first, second] = terminatorsToTry(rule, credentials);
  try {
    return await dial(first);
  } catch (error) {
    if (!isUnknownIssuer(error)) throw error;
    onOther(first, error);
    if (second === undefined) throw error;
    return await dial(second);
  }
}

/**
 * Dials the server with the agent's certificate and token. Where its identity is in doubt, a probe verifies it first.
 */
export async function dialServer<T>(
  to: CarrierDialOptions,
  rule: TerminatorRule,
  credentials: Credentials,
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T> {
  const { ca, cert, key, token } = credentials;
  const until = performance.now() + to.timeoutMs;
  if (mayBeIntercepted(rule, credentials)) await probeServer({ ...to, watch: {}, tls: { ...to.tls, ca } });
  try {
    return await dial({
      ...to,
      tls: { ...to.tls, ca, cert, key },
      ...(token && { headers: { authorization: `Bearer ${token.text}` } }),
      timeoutMs: Math.max(1, until - performance.now()),
    });
  } catch (error) {
    throw cert !== undefined && error instanceof LinkRefused && error.fault === "certificate_missing"
      ? new UnseenCertificate(error)
      : error;
  }
}

/** A token is sent after the server's certificate was verified; TLS 1.2 sends the agent's certificate before. */
function mayBeIntercepted({ options, path }: TerminatorRule, { cert, outerCa }: Credentials): boolean {
  return options.innerTls === "auto" && cert !== undefined && (outerCa !== undefined || path.intercepted);
}

/** Dials a middlebox of these authorities without certificate and token. */
export async function dialMiddlebox<T>(
  to: CarrierDialOptions,
  ca: CarrierDialOptions["tls"]["ca"],
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T> {
  try {
    return await dial({ ...to, tls: { ...to.tls, ca } });
  } catch (error) {
    throw error instanceof LinkRefused && error.status === 401 ? withoutInner(error) : error;
  }
}

/** The server misses a credential that is sent inside inner TLS only. */
function withoutInner({ reason, retryAfterMs }: LinkRefused): LinkRefused {
  const cure = "it seems to take no inner TLS (--inner-tls of the server, agents.innerTls of the cluster's document)";
  return new LinkRefused({ status: 401, reason: `${reason}; ${cure}`, retryAfterMs });
}

/** The authorities of middleboxes that may begin a link. A peer of `--ca-cert` is the server, except with `always`. */
export function middleboxCa({ options }: TerminatorRule, credentials: Credentials): CarrierDialOptions["tls"]["ca"] {
  return options.innerTls === "always" ? outerTrust(credentials) : [...(credentials.outerCa ?? [])];
}

/**
 * The authorities that are good enough for a link with inner TLS: the server's, or Node's, and those of middleboxes.
 */
export function outerTrust({ ca, outerCa = [] }: Credentials): CarrierDialOptions["tls"]["ca"] {
  if (ca === undefined && outerCa.length === 0) return undefined;
  return [...(ca === undefined ? wellKnownAuthorities() : [ca]), ...outerCa];
}

/**
 * The agent sent its certificate and the server received none: a middlebox with a certificate of `--ca-cert` ended TLS,
 * most likely a balancer whose CA was given in place of the server's.
 */
export class UnseenCertificate extends LinkRefused {
  constructor(refusal: LinkRefused) {
    super({ ...refusal, note: `; ${CURE}` });
  }
}

const CURE =
  "the agent sent one, so a middlebox that --ca-cert knows opens TLS: give its CA as --outer-ca and only the server's as --ca-cert (if both are one CA, --inner-tls=always), and the server --inner-tls=auto";
