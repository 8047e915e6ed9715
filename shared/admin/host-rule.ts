import { isIP, isIPv6 } from "node:net";

/**
 * Whether a request with this Host may be for the admin port. A page in an operator's browser reaches a loopback port
 * when its own name resolves to 127.0.0.1 (DNS rebinding), and then Host still is that name; an address or `localhost`
 * cannot be made to lead elsewhere.
 */
export function isOwnHost(host: string | undefined, allowed: readonly string[]): boolean {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d*)?$/.exec(host ?? "") ?? [];
  if (bracketed !== undefined) return isIPv6(bracketed);
  if (plain === undefined || plain === "") return false;
  if (isIP(plain) !== 0) return true;
  const name = plain.toLowerCase().replace(/\.$/, "");
  return name === "localhost" || allowed.some((each) => each.toLowerCase() === name);
}
