import { LinkRefused } from "../../shared/wire/handshake.ts";

/** How both sentences begin that say of a certificate that none has come (shared/tls/identity.ts, `verifyPeer`). */
const UNSEEN = /^no client certificate /;

/** Does the server miss a certificate? */
export function isUnseen({ reason }: LinkRefused): boolean {
  return UNSEEN.test(reason);
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
