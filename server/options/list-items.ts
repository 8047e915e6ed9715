import { parseCidr } from "../../shared/address/network.ts";
import { parsePattern } from "../../shared/tls/identity.ts";

// Parsers of list items: each reports a faulty item together with all other faults of the options, and passes its text
// on to the part of the server that uses it.

export function identityPattern(text: string): string {
  try {
    parsePattern(text);
  } catch (error) {
    throw new Error(`does not take this: ${(error as Error).message}`, { cause: error });
  }
  return text;
}

export function cidr(text: string): string {
  parseCidr(text);
  return text;
}
