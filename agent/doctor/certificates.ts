import { X509Certificate } from "node:crypto";
import { printable } from "../../shared/outcomes.ts";
import { certificates, chainFrom } from "../../shared/tls/certificate-fields.ts";
import type { ChainLink } from "./report.ts";

/** The certificates that the peer has shown, from its own upwards. */
export function chainOf(shown: X509Certificate | undefined): readonly ChainLink[] {
  return shown === undefined ? [] : chainFrom(shown).map(linkOf);
}

/** The first certificate of a PEM file, or the one in DER. */
export function firstOf(content: string | Buffer): ChainLink {
  return linkOf(new X509Certificate(content));
}

/** All certificates of these PEM files. */
export function linksIn(pems: readonly string[]): readonly ChainLink[] {
  return pems.flatMap(certificates).map(linkOf);
}

function linkOf({ subject, issuer, validFrom, validTo }: X509Certificate): ChainLink {
  return {
    subject: nameOf(subject),
    issuer: nameOf(issuer),
    validFrom: new Date(validFrom).toISOString(),
    validTo: new Date(validTo).toISOString(),
  };
}

/** `CN=proxy, O=Corp`: as people write it, the most telling part first; Node has a line for each part. */
function nameOf(lines: string | undefined): string {
  const parts = (lines ?? "").split("\n").filter((part) => part !== "");
  return printable(parts.reverse().join(", ")) || "nobody";
}
