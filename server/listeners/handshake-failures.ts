import type { TLSSocket } from "node:tls";
import { EndedInHandshake } from "../../shared/listen/acceptor.ts";
import { printable } from "../../shared/outcomes.ts";

const NO_TLS = "the client does not speak TLS, and this port speaks nothing else";
const BROKEN_PROOF = "the client's certificate, or the proof that the key is its own, is broken";
const NO_SIGNATURE = "the client takes no signature that the key of our certificate can make";
const NO_KEY_EXCHANGE = "client and server have no key exchange in common";
/** Clients that look at a certificate only when it is theirs to go on, as Node.js does, go without an alert. */
const OR_REJECTED = "a client that does not accept our certificate may leave like this: its own log says so";

/** By Node's name for OpenSSL's reason. */
const WORDS: Readonly<Record<string, string>> = {
  ERR_SSL_HTTP_REQUEST:
    "the client speaks plain HTTP, and this port speaks TLS: it needs a URL with https:// or wss://",
  ERR_SSL_HTTPS_PROXY_REQUEST:
    "the client sends its CONNECT in plain HTTP, and this port speaks TLS: it needs a proxy URL with https://",
  ERR_SSL_WRONG_VERSION_NUMBER: NO_TLS,
  ERR_SSL_UNKNOWN_PROTOCOL: NO_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NO_TLS,
  ERR_SSL_UNSUPPORTED_PROTOCOL: "the client speaks no TLS version that is taken here (--tls-min-version)",
  ERR_SSL_VERSION_TOO_LOW: "the client speaks no TLS version that is taken here (--tls-min-version)",
  ERR_SSL_NO_SHARED_CIPHER: "client and server have no cipher in common (--cipher-suites)",
  ERR_SSL_NO_SUITABLE_SIGNATURE_ALGORITHM: NO_SIGNATURE,
  ERR_SSL_NO_SHARED_SIGNATURE_ALGORITHMS: NO_SIGNATURE,
  ERR_SSL_NO_SUITABLE_KEY_SHARE: NO_KEY_EXCHANGE,
  ERR_SSL_NO_SHARED_GROUPS: NO_KEY_EXCHANGE,
  ERR_SSL_NO_SUITABLE_GROUPS: NO_KEY_EXCHANGE,
  ERR_SSL_BAD_SIGNATURE: BROKEN_PROOF,
  ERR_SSL_CERTIFICATE_VERIFY_FAILED: BROKEN_PROOF,
  ERR_SSL_UNEXPECTED_EOF_WHILE_READING: `the connection ended during the TLS handshake: ${OR_REJECTED}`,
  ERR_TLS_HANDSHAKE_TIMEOUT: "the client did not finish the handshake within --handshake-timeout",
  ECONNRESET: `the client reset the connection during the TLS handshake: ${OR_REJECTED}`,
};

/** What the client has said itself (RFC 8446 §6.2), behind the protocol that OpenSSL puts in front. */
const ALERT = /^ERR_SSL_.*ALERT_([A-Z_]+)$/;
const REJECTED = "the client does not accept our certificate";
const ALERTS: Readonly<Record<string, string>> = {
  UNKNOWN_CA: `${REJECTED}: it does not know the CA that signed it`,
  BAD_CERTIFICATE: `${REJECTED}: it does not know the CA that signed it, or asked for another name`,
  CERTIFICATE_UNKNOWN: `${REJECTED}: it does not know the CA that signed it, or asked for another name`,
  CERTIFICATE_EXPIRED: `${REJECTED}: by its clock it has expired, or is not valid yet`,
  CERTIFICATE_REVOKED: `${REJECTED}: it was revoked`,
  UNSUPPORTED_CERTIFICATE: `${REJECTED}: it cannot use one of this kind`,
  PROTOCOL_VERSION: "the client takes no TLS version that is spoken here",
  HANDSHAKE_FAILURE: "the client found nothing in common to go on with",
};

/** Why a TLS handshake has failed, for whoever is to mend it; OpenSSL's own word stands behind in brackets. */
export function handshakeWords(error: NodeJS.ErrnoException & { readonly reason?: string }): string {
  const { code, message } = error;
  if (error instanceof EndedInHandshake) return `${message}: ${OR_REJECTED}`;
  if (code === undefined) return printable(message); // is in words already
  const alert = ALERT.exec(code)?.[1];
  const words =
    alert === undefined ? WORDS[code] : (ALERTS[alert] ?? `the client ended it with the alert "${spoken(alert)}"`);
  return printable(`${words ?? error.reason ?? message} [${code}]`, 300);
}

/** The same of one who has left after it and before a request, as whoever looks at our certificate late does. */
export function leftWords({ errored }: Pick<TLSSocket, "errored">): string {
  const { code } = (errored ?? {}) as NodeJS.ErrnoException;
  return errored && ALERT.test(code ?? "") ? handshakeWords(errored) : `it had nothing to ask, or: ${OR_REJECTED}`;
}

function spoken(alert: string): string {
  return alert.toLowerCase().replaceAll("_", " ");
}
