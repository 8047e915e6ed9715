import type { X509Certificate } from "node:crypto";

/** RFC 5280 §4.2.1.12. */
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

/** Go takes it for every usage, OpenSSL for none of a server's or a client's. */
const ANY = "2.5.29.37.0";

/** What the extended key usage of a certificate lets it be. */
export interface Usage {
  readonly servers: boolean;
  readonly clients: boolean;
  readonly any: boolean;
}

/** One without that extension may be anything. */
export function usageOf({ keyUsage }: Pick<X509Certificate, "keyUsage">): Usage {
  // Node calls the extended one by this name; its types do not know that it may be absent.
  const usages: readonly string[] | undefined = keyUsage;
  return {
    servers: usages?.includes(SERVER_AUTH) ?? true,
    clients: usages?.includes(CLIENT_AUTH) ?? true,
    any: usages?.includes(ANY) ?? true,
  };
}
