import type { IncomingHttpHeaders } from "node:http";

/** How balancers pass a client's certificate on: Envoy, nginx and its ingress, AWS, HAProxy, Google Cloud, and RFC 9440. */
const HEADERS: readonly RegExp[] = [
  /^x-forwarded-(?:tls-)?client-cert/,
  /^x-amzn-mtls-clientcert/,
  /^(?:x-)?ssl-client-/,
  /^x-client-cert/,
  /^client-cert(?:-chain)?$/,
];

/**
 * The header by which somebody in front claims a client certificate. None is believed on any port: whoever gets past the
 * balancer, or finds one that passes on what it was sent, could write it, too.
 */
export function claimedCertificate(headers: IncomingHttpHeaders): string | undefined {
  return Object.keys(headers).find((name) => HEADERS.some((header) => header.test(name)));
}
