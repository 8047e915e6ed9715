import { isIP } from "node:net";
import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";

/**
 * What Node says of a failed handshake. Where a peer is called by an address, and its certificate names none, Node ends in
 * a list of nothing: the names that it does have are said in its place.
 */
export function identityWords(error: Error): string {
  const { code, host = "", cert } = error as WrongIdentity;
  if (code !== "ERR_TLS_CERT_ALTNAME_INVALID" || isIP(host) === 0 || cert === undefined) return error.message;
  const names = cert.subjectaltname ?? "";
  if (/(?:^|, )IP Address:/.test(names)) return error.message;
  const { CN } = cert.subject ?? {};
  const others =
    names ||
    [CN ?? []]
      .flat()
      .map((name) => `CN=${name}`)
      .join(", ");
  const only = others === "" ? "nor anything else" : `only ${printable(others)}`;
  return `the certificate names no addresses, and so not ${host}, ${only}`;
}

/** As `tls.checkServerIdentity` makes it. */
interface WrongIdentity extends NodeJS.ErrnoException {
  readonly host?: string;
  readonly cert?: PeerCertificate;
}
