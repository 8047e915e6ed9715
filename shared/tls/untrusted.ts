/** OpenSSL's words for a chain that leads to none of our CAs; whoever expired or has another name is somebody we know. */
const UNTRUSTED: ReadonlySet<string | undefined> = new Set([
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_SIGNATURE_FAILURE",
]);

export function isUntrusted({ code }: NodeJS.ErrnoException): boolean {
  return UNTRUSTED.has(code);
}
