import { isIP } from "node:net";
import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";

/**
 * What Node says of a failed handshake. Where a peer is called by an address, and its certificate names none, Node ends in
 * a list of nothing, and says little more where it is called by a name: the names that it does have are said in its place.
 */
export function identityWords(error: Error): string {
  const { code, host = "", cert } = error as WrongIdentity;
  if (code !== "ERR_TLS_CERT_ALTNAME_INVALID" || host === "" || cert === undefined) return error.message;
  const isAddress = isIP(host) !== 0;
  const names = cert.subjectaltname ?? "";
  if ((isAddress ? /(?:^|, )IP Address:/ : /(?:^|, )DNS:/).test(names)) return error.message;
  const common = [cert.subject?.CN ?? []].flat().filter((name) => name !== "");
  // A common name counts for a host; for an address it is told where no other name is there.
  const told = isAddress && names !== "" ? [] : common.map((name) => `CN=${name}`);
  const others = [names, ...told].filter((name) => name !== "").join(", ");
  const only = others === "" ? "nor anything else" : `only ${printable(others)}`;
  if (!isAddress && common.length > 0) return `the certificate does not name ${host}, ${only}`;
  return `the certificate names no ${isAddress ? "addresses" : "host"}, and so not ${host}, ${only}`;
}

/** As `tls.checkServerIdentity` makes it. */
interface WrongIdentity extends NodeJS.ErrnoException {
  readonly host?: string;
  readonly cert?: PeerCertificate;
}
