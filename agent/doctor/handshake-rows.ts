import type { Finding } from "./steps.ts";

/** One sentence that names the culprit, and what to do next. */
export interface Row {
  readonly sentence: string;
  readonly next: string;
}

/** What is said of a TLS handshake that came to nothing without a certificate to blame, by how it ended. */
export const HANDSHAKE_ROWS: Readonly<Record<NonNullable<Finding["handshake"]> | "refused", (by: string) => Row>> = {
  cut: (by) => ({
    sentence: `What answers at ${by} closes the connection in the TLS handshake.`,
    next: "See whether the server runs: a router or balancer that reaches none cuts connections so. Then look at its log: one that has no file descriptors left cuts them, too, and says it there. If it knows nothing of this, a firewall that reads server names may do that: ask the network team.",
  }),
  silent: (by) => ({
    sentence: `TCP to ${by} stands, and nobody answers the TLS handshake.`,
    next: "Check the port in --server, and whether the server is well: its health port, its log. If it is, a firewall that reads server names may swallow the handshake: ask the network team.",
  }),
  refused: (by) => ({
    sentence: `The TLS handshake with ${by} fails.`,
    next: "The detail above is what TLS says of it: a version, a cipher or a certificate that one end does not take. Compare --tls-min-version and --cipher-suites of both ends, and look at the server's log.",
  }),
};
