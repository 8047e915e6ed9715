import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";

/** Somebody in between ends the TLS, or the server is not the one that is meant: the CAs do not know its certificate. */
export class Intercepted extends Error {
  override readonly name = "Intercepted";
  readonly code: string | undefined;
  /** Who has signed what was shown, as it says itself. */
  readonly issuer: string;

  constructor(issuer: string | undefined, cause: NodeJS.ErrnoException) {
    const by = issuer ?? "unknown";
    const cure =
      "have the server excepted from TLS inspection, or go through it with --outer-ca (and not --inner-tls=never); or, if that is the server's own CA, give it as --ca-cert, and check that the port in --server is the one for agents";
    super(`TLS is intercepted by "${by}", which has signed the certificate shown and is none of our CAs: ${cure}`, {
      cause,
    });
    this.code = cause.code;
    this.issuer = by;
  }
}

/** `CN`, or else the organisation, of a certificate's issuer; the words are a stranger's. */
export function issuerOf(certificate: PeerCertificate): string | undefined {
  const { CN, O } = certificate?.issuer ?? {};
  const name = [CN ?? O].flat()[0];
  return name === undefined ? undefined : printable(name, 100);
}
