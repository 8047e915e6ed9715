import { ConfigError } from "../config/options.ts";

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
