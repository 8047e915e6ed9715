import { createServer, isIP, isIPv6 } from "node:net";
import { canonicalAddress } from "../address/network.ts";
import { ConfigError } from "./options.ts";

/** Where to listen, with the flags that change it, for messages. */
export interface ListenAddress {
  readonly port: number;
  /** "" is every interface. */
  readonly host: string;
  readonly option: string;
  readonly hostOption: string;
}

/** Maximum length of the path of a unix socket, bytes: on Linux sun_path has 108 with the final zero. */
export const MAX_SOCKET_PATH = 107;

/** Why a port could not be opened, as a sentence with the option to change. Returns other errors as they are. */
export function listenError(error: unknown, at: ListenAddress): Error {
  const address = `${at.host === "" ? "" : `${at.host} `}port ${at.port}`;
  const [cure, fault] = LISTEN_CURES[(error as NodeJS.ErrnoException).code ?? ""] ?? [];
  if (fault === undefined) return error instanceof Error ? error : new Error(String(error));
  return new ConfigError([`Cannot listen on ${address}: ${cure} (${at[fault]}).`], { cause: error });
}

const LISTEN_CURES: Readonly<Record<string, readonly [string, "option" | "hostOption"]>> = {
  EADDRINUSE: ["it is in use by another process; choose another port", "option"],
  EACCES: ["this user may not use the port; choose one above 1023", "option"],
  EADDRNOTAVAIL: ["this host does not have the address; choose another", "hostOption"],
  EAFNOSUPPORT: ["this host has no addresses of this kind; choose another", "hostOption"],
  ENOTFOUND: ["the name does not resolve; choose another", "hostOption"],
};

/** Opens the port and closes it again. Rejects like `listenError` if it cannot be opened. */
export function checkPort(at: ListenAddress): Promise<void> {
  const { port, host } = at;
  return new Promise((resolve, reject) => {
    const probe = createServer((socket) => socket.destroy());
    probe.once("error", (error) => reject(listenError(error, at)));
    probe.listen({ port, host }, () => probe.close(() => resolve()));
  });
}

/** These addresses stand for all interfaces. Node uses "::" for an empty address, and IPv4 connections reach it too. */
const ALL = "::";
const ALL_IPV4 = "0.0.0.0";

/** Whether two listeners on these bind addresses cannot have the same port. A name is only compared with itself. */
export function addressesOverlap(one: string, other: string): boolean {
  const [a, b] = [canonical(one), canonical(other)];
  if (a === b || a === ALL || b === ALL) return true;
  return (a === ALL_IPV4 && !isIPv6(b)) || (b === ALL_IPV4 && !isIPv6(a));
}

function canonical(address: string): string {
  if (address === "") return ALL;
  if (isIP(address) === 0) return address.toLowerCase();
  return canonicalAddress(address) + zoneOf(address);
}

/**
 * The zone of a link-local address, which tells it from the same address on another link. Other addresses need none.
 */
function zoneOf(address: string): string {
  return /^fe[89ab].:.*(%.+)$/i.exec(address)?.[1] ?? "";
}
