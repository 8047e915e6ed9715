import { constants } from "node:crypto";
import { createSecureContext, DEFAULT_CIPHERS } from "node:tls";

/** Every TLS client of the last ten years knows one of these. */
const USUAL = "X25519:P-256:P-384";
/** With a part that quantum computers do not break; OpenSSL 3.5 and newer know it. */
const HYBRID = "X25519MLKEM768";

/**
 * The groups of the key exchange (RFC 8446 §4.2.7) of our TLS servers, for `ecdhCurve`. By OpenSSL's own list a client
 * may also choose ffdhe8192, which takes the server 200 ms of the event loop for one ClientHello and the client nothing
 * (P-521 10 ms, P-384 5 ms, the others 1 ms): any client that reaches a port could delay everybody.
 */
export const KEY_EXCHANGE = isKnown(HYBRID) ? `${HYBRID}:${USUAL}` : USUAL;

/**
 * The same for our TLS clients whose server a tenant may run. In TLS 1.2 such a server also brings the modulus of DHE
 * (RFC 5246 §7.4.3): one of 10,000 bits, which OpenSSL accepts, takes the client 1.2 s of the event loop. And it asks
 * for another handshake on the same connection (§7.4.1.1) as often as it likes.
 */
export const CLIENT_KEY_EXCHANGE = {
  ecdhCurve: KEY_EXCHANGE,
  ciphers: `${DEFAULT_CIPHERS}:!kDHE`,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
} as const;

function isKnown(group: string): boolean {
  try {
    createSecureContext({ ecdhCurve: group, ca: [] }); // left out, Node.js 24 would read all public CAs, for 4 ms
    return true;
  } catch {
    return false;
  }
}
