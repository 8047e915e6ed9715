import type { TLSSocket } from "node:tls";

// How OpenSSL writes a session (i2d_SSL_SESSION(3)), which its documentation leaves open. docs/node.md says why it is
// used.

const SEQUENCE = 0x30;
/** The field `peer`, with an explicit tag. */
const PEER = 0xa3;
/** The lengths of DER below 64 KiB (X.690 §8.1.3): in one byte, or behind a byte that says in how many. */
const SHORT = 0x80;
const IN_ONE = 0x81;
const IN_TWO = 0x82;

/**
 * The certificate (DER) that the peer of a TLS connection has shown, out of the session: `getPeerCertificate` makes
 * some thirty values for it, which takes ten times as long. `undefined`: none was shown, or the session cannot be read.
 */
export function shownCertificate(socket: TLSSocket): Buffer | undefined {
  const session = socket.getSession();
  const whole = session === undefined ? undefined : fieldAt(session, 0);
  if (session === undefined || whole?.tag !== SEQUENCE || whole.end !== session.length) return undefined;
  for (let field = fieldAt(session, whole.start); field !== undefined; field = fieldAt(session, field.end)) {
    if (field.tag === PEER) return session.subarray(field.start, field.end);
  }
  return undefined;
}

/** Tag, and where the content stands; `undefined` where no whole field does. */
function fieldAt(bytes: Buffer, at: number): { tag: number; start: number; end: number } | undefined {
  const [tag, first] = [bytes[at], bytes[at + 1]];
  if (tag === undefined || first === undefined) return undefined;
  const size = first < SHORT ? 0 : first === IN_ONE ? 1 : first === IN_TWO ? 2 : undefined;
  const start = at + 2 + (size ?? 0);
  if (size === undefined || start > bytes.length) return undefined;
  const end = start + (size === 0 ? first : bytes.readUIntBE(at + 2, size));
  return end > bytes.length ? undefined : { tag, start, end };
}
