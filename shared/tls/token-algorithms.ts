/**
 * Signatures that only the holder of a private key can make (RFC 7518 §3.1, RFC 8037). With a shared key, whoever
 * verifies could also sign.
 */
export const ASYMMETRIC: readonly string[] = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];
