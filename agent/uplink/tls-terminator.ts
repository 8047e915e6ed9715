import { type CarrierDialOptions, type DialledOuter, dialOuter, probeServer } from "../../shared/link/dial.ts";
import { wellKnownAuthorities } from "../../shared/tls/authorities.ts";
import { UnknownIssuer } from "../../shared/tls/server-certificate.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import type { Credentials } from "./credentials.ts";

/**
 * Who may stand at the end of the TLS connectDirectly, and what he is shown: the one place that decides by `--inner-tls` and
 * `--outer-ca`. The agent dials by it, and so does the doctor.
 *
 * ```
 *  --inner-tls  --outer-ca
 *  never        any         the server
 *  auto         absent      the server
 *  auto         given       the server; where somebody else stands there, a box of --outer-ca
 *  always       any         a box: anybody of --ca-cert or --outer-ca, the server among them
 * ```
 * The server, which proves itself by `--ca-cert`, is shown certificate or token. A box is shown nothing: all goes by the
 * inner TLS over its link.
 */
export type TlsTerminator = "server" | "box";

export interface TerminatorRule {
  readonly innerTls: "always" | "auto" | "never";
  /** `intercepted`: somebody else than the server was found there last. */
  readonly path: { readonly intercepted: boolean };
}

/** In the order in which they are tried: first what worked last, because a try that is in vain costs a handshake. */
function terminatorsToTry(
  { innerTls, path }: TerminatorRule,
  { outerCa }: Credentials,
): readonly [TlsTerminator, TlsTerminator?] {
  if (innerTls === "always") return ["box"];
  if (innerTls === "never" || outerCa === undefined) return ["server"];
  return path.intercepted ? ["box", "server"] : ["server", "box"];
}

/** Dials one end after the other, as long as somebody else stands there, of whom `onElse` is told at the first. */
export async function dialTerminators<T>(
  rule: TerminatorRule,
  credentials: Credentials,
  dial: (end: TlsTerminator) => Promise<T>,
  onElse: (end: TlsTerminator, who: UnknownIssuer) => void,
): Promise<T> {
  const [first, second] = terminatorsToTry(rule, credentials);
  try {
    return await dial(first);
  } catch (error) {
    if (!(error instanceof UnknownIssuer)) throw error;
    onElse(first, error);
    if (second === undefined) throw error;
    return await dial(second);
  }
}

/** Shows the server all that we have; whether it is the server is asked first where that is doubtful. */
export async function dialServer<T>(
  to: CarrierDialOptions,
  rule: TerminatorRule,
  credentials: Credentials,
  dial: (to: CarrierDialOptions) => Promise<T>,
): Promise<T> {
  const { ca, cert, key, token } = credentials;
  const until = performance.now() + to.timeoutMs;
  if (isDoubtful(rule, credentials)) await probeServer({ ...to, watch: {}, tls: { ...to.tls, ca } });
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

/** A token is sent when the server's certificate was found good; our own certificate goes before that can be judged. */
function isDoubtful({ innerTls, path }: TerminatorRule, { cert, outerCa }: Credentials): boolean {
  return innerTls === "auto" && cert !== undefined && (outerCa !== undefined || path.intercepted);
}

/** Shows a box of these authorities nothing of ours. */
export function dialMiddlebox(to: CarrierDialOptions, ca: CarrierDialOptions["tls"]["ca"]): Promise<DialledOuter> {
  return dialOuter({ ...to, tls: { ...to.tls, ca } });
}

/**
 * Whose boxes may begin a link: whoever is of `--ca-cert` is the server itself, and met as such unless inner TLS is wanted
 * always.
 */
export function middleboxCa(
  { innerTls }: Pick<TerminatorRule, "innerTls">,
  credentials: Credentials,
): CarrierDialOptions["tls"]["ca"] {
  return innerTls === "always" ? outerTrust(credentials) : [...(credentials.outerCa ?? [])];
}

/**
 * The server's authorities and those of whoever may stand between, good enough for a link that has its inner TLS; the
 * well-known ones where the server's are not given.
 */
export function outerTrust({ ca, outerCa = [] }: Credentials): CarrierDialOptions["tls"]["ca"] {
  if (ca === undefined && outerCa.length === 0) return undefined;
  return [...(ca === undefined ? wellKnownAuthorities() : [ca]), ...outerCa];
}

/**
 * We have shown our certificate, and the server has seen none: whoever took it was not the server, though `--ca-cert`
 * knows him. A balancer, most likely, whose CA was given in place of the server's.
 */
export class UnseenCertificate extends LinkRefused {
  /** What the server has said. */
  override readonly cause: LinkRefused;

  constructor(refusal: LinkRefused) {
    const { status, closeCode, reason, retryAfterMs } = refusal;
    super({
      ...(status !== undefined && { status }),
      ...(closeCode !== undefined && { closeCode }),
      reason: `${reason}; ${CURE}`,
      retryAfterMs,
    });
    this.cause = refusal;
  }
}

const CURE =
  "we have shown ours, so somebody in front of the server opens TLS, whom --ca-cert knows: give his CA as --outer-ca and only the server's own as --ca-cert (where both are of one CA, --inner-tls=always), and the server --inner-tls=auto";
