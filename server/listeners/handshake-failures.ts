import type { TLSSocket } from "node:tls";
import { EndedInHandshake } from "../../shared/listen/acceptor.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";

const NO_TLS = "the client does not speak TLS, and this port speaks nothing else";
const BROKEN_PROOF = "the client's certificate, or the proof that the key is its own, is broken";
const NO_SIGNATURE = "the client takes no signature that the key of our certificate can make";
const NO_KEY_EXCHANGE = "client and server have no key exchange in common";
/** Node.js and other clients verify a certificate after the handshake, and close the connection without an alert. */
const OR_REJECTED = "a client that does not accept our certificate may leave like this: its own log says so";

/** Sentences by the codes that Node makes of OpenSSL's reasons. */
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

/** An alert that the client has sent (RFC 8446 §6.2); OpenSSL puts the protocol in front of its name. */
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

/** Why a TLS handshake has failed, as a sentence for an operator, with OpenSSL's code in brackets. */
export function handshakeFailure(error: NodeJS.ErrnoException & { readonly reason?: string }): string {
  const { code, message } = error;
  if (error instanceof EndedInHandshake) return `${message}: ${OR_REJECTED}`;
  if (code === undefined) return printable(message); // it is a sentence of ours
  const alert = ALERT.exec(code)?.[1];
  const words =
    alert === undefined ? WORDS[code] : (ALERTS[alert] ?? `the client ended it with the alert "${alertName(alert)}"`);
  return printable(`${words ?? error.reason ?? message} [${code}]`, 300);
}

/** Why a client has closed a connection after its TLS handshake and before its request. */
export function closedEarlyReason({ errored }: Pick<TLSSocket, "errored">): string {
  const { code } = (errored ?? {}) as NodeJS.ErrnoException;
  return errored && ALERT.test(code ?? "") ? handshakeFailure(errored) : `it had nothing to ask, or: ${OR_REJECTED}`;
}

function alertName(alert: string): string {
  return alert.toLowerCase().replaceAll("_", " ");
}

/** A client that has closed the connection after its TLS handshake, before its request had come. */
export interface ClosedEarly {
  readonly listener: "callers" | "agents";
  readonly cluster: string;
  readonly remote: string;
  readonly socket: TLSSocket;
}

/**
 * Logs a connection that was closed early. A client with a certificate of ours does not accept the server's
 * certificate, which an operator wants to see; a client without one is most often a balancer's probe, every few
 * seconds.
 */
export function logClosedEarly(
  { socket, ...fields }: ClosedEarly,
  { log, throttledLog }: { readonly log: Logger; readonly throttledLog: ThrottledLog },
): void {
  const isSilent = socket.bytesRead === 0;
  const reason = isSilent ? closedEarlyReason(socket) : "only a part of a request has come";
  const message = `connection ended after its TLS handshake, without ${isSilent ? "a request" : "a whole request"}`;
  if (socket.authorized) throttledLog.write("info", { ...fields, reason }, message);
  else log.debug({ ...fields, reason }, message);
}
