import { isIP, isIPv4, isIPv6, SocketAddress } from "node:net";
import { ConfigError } from "./options.ts";

/** The addresses that stand for all of a host; Node takes "::" for an empty one, and IPv4 comes to it, too. */
const ALL = "::";
const ALL_IPV4 = "0.0.0.0";

/** Can two listeners not have the same port on these bind addresses? A name is taken for itself alone. */
export function overlap(one: string, other: string): boolean {
  const [a, b] = [canonical(one), canonical(other)];
  if (a === b || a === ALL || b === ALL) return true;
  return (a === ALL_IPV4 && !isIPv6(b)) || (b === ALL_IPV4 && !isIPv6(a));
}

function canonical(address: string): string {
  if (address === "") return ALL;
  if (isIP(address) === 0) return address.toLowerCase();
  if (isIPv4(address)) return address;
  const { address: plain } = new SocketAddress({ address, family: "ipv6" });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(plain)?.[1] ?? plain + zoneOf(address);
}

/** Which link a link-local address is of; others are the same on each. */
function zoneOf(address: string): string {
  return /^fe[89ab].:.*(%.+)$/i.exec(address)?.[1] ?? "";
}

/** Where to listen, with the flags that change it, for sentences. */
export interface ListenAt {
  readonly port: number;
  /** "" is every interface. */
  readonly host: string;
  readonly option: string;
  readonly hostOption: string;
}

/** Why a port could not be opened, as a sentence with the option at fault. Other errors come back as they are. */
export function listenError(error: unknown, at: ListenAt): Error {
  const address = `${at.host === "" ? "" : `${at.host} `}port ${at.port}`;
  const [cure, fault] = LISTEN_CURES[(error as NodeJS.ErrnoException).code ?? ""] ?? [];
  if (fault === undefined) return error instanceof Error ? error : new Error(String(error));
  return new ConfigError([`Cannot listen on ${address}: ${cure} (${at[fault]}).`], { cause: error });
}

const LISTEN_CURES: Readonly<Record<string, readonly [string, "option" | "hostOption"]>> = {
  EADDRINUSE: ["it is in use by another process; choose another port", "option"],
  EACCES: ["this user may not use the port; choose one above 1023", "option"],
  EADDRNOTAVAIL: ["the address is none of this host's; choose another", "hostOption"],
  EAFNOSUPPORT: ["the host has no such kind of address; choose another", "hostOption"],
  ENOTFOUND: ["the address is no name that resolves; choose another", "hostOption"],
};
