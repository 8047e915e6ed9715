import { ConfigError } from "./options.ts";

/** Why a port could not be opened, as a sentence with the option that moves it. Other errors come back as they are. */
export function listenError(error: unknown, at: { port: number; host: string; option: string }): Error {
  const address = `${at.host === "" ? "" : `${at.host} `}port ${at.port}`;
  const code = (error as NodeJS.ErrnoException).code;
  const cure = LISTEN_CURES[code ?? ""];
  if (cure === undefined) return error instanceof Error ? error : new Error(String(error));
  return new ConfigError([`Cannot listen on ${address}: ${cure(at.option)}.`], { cause: error });
}

const LISTEN_CURES: Readonly<Record<string, (portOption: string) => string>> = {
  EADDRINUSE: (option) => `it is in use by another process; choose another port (${option})`,
  EACCES: (option) => `this user may not use the port; choose one above 1023 (${option})`,
  EADDRNOTAVAIL: (option) => `the address is none of this host's; choose another to go with ${option}`,
  EAFNOSUPPORT: (option) => `the host has no such kind of address; choose another to go with ${option}`,
  ENOTFOUND: (option) => `the address is no name that resolves; choose another to go with ${option}`,
};
