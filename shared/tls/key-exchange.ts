import { createSecureContext } from "node:tls";

/** Every TLS client of the last ten years knows one of these. */
const USUAL = "X25519:P-256:P-384";
/** With a part that quantum computers do not break; OpenSSL 3.5 and newer know it. */
const HYBRID = "X25519MLKEM768";

/**
 * The groups of the key exchange (RFC 8446 §4.2.7) of our TLS servers, for `ecdhCurve`. By OpenSSL's own list a client
 * may also choose ffdhe8192, which takes the server 200 ms of the event loop for one ClientHello and the client nothing
 * (P-521 10 ms, P-384 5 ms, the others 1 ms): whoever reaches a port could stop everybody.
 */
export const KEY_EXCHANGE = isKnown(HYBRID) ? `${HYBRID}:${USUAL}` : USUAL;

function isKnown(group: string): boolean {
  try {
    createSecureContext({ ecdhCurve: group, ca: [] }); // left out, Node.js 24 would read all public CAs, for 4 ms
    return true;
  } catch {
    return false;
  }
}
