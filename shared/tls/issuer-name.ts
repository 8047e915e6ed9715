import type { X509Certificate } from "node:crypto";
import { printable } from "../outcomes.ts";

/** `CN`, or else the organisation, of a certificate's issuer; the words are a stranger's. */
export function issuerName({ issuer }: Pick<X509Certificate, "issuer">): string | undefined {
  const lines = (issuer ?? "").split("\n");
  const partOf = (field: string) => lines.find((line) => line.startsWith(`${field}=`))?.slice(field.length + 1);
  const name = partOf("CN") ?? partOf("O");
  return name === undefined ? undefined : printable(name, 100);
}
