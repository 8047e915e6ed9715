import type { X509Certificate } from "node:crypto";
import { extensionsOf, theElement } from "./der.ts";

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

/** OIDs of extensions, hexadecimal (RFC 5280 §4.2.1.9, §4.2.1.3). */
const BASIC_CONSTRAINTS = "551d13";
const KEY_USAGE = "551d0f";
/** Netscape's certificate type, from before there were the two above: a BIT STRING, whose bit 5 is "CA of TLS". */
const NETSCAPE_TYPE = "6086480186f8420101";
const NETSCAPE_TLS_CA = 0x04;

/**
 * May a root that does not say that it is a CA be one? OpenSSL accepts roots of X.509 version 1, roots with a key usage
 * (`checkIssued` verifies that it allows signing), and roots whose Netscape certificate type says it. A CA under a root
 * has to say it.
 */
export function mayBeRoot({ raw }: X509Certificate): boolean {
  try {
    const extensions = extensionsOf(raw);
    if (extensions === undefined) return true;
    if (extensions.has(BASIC_CONSTRAINTS)) return false;
    const type = extensions.get(NETSCAPE_TYPE);
    const bits = type === undefined ? 0 : (theElement(type).content[1] ?? 0);
    return extensions.has(KEY_USAGE) || (bits & NETSCAPE_TLS_CA) !== 0;
  } catch {
    return false; // OpenSSL takes what is not quite DER
  }
}
