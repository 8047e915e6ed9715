/** What is used of the package `kerberos`: it is an optional peer, so that its types need not be there to build. */
export interface Kerberos {
  readonly GSS_MECH_OID_SPNEGO: number;
  initializeClient(service: string, options: { principal?: string; mechOID: number }): Promise<KerberosClient>;
}

export interface KerberosClient {
  readonly contextComplete: boolean;
  /** Base64 in and out. */
  step(challenge: string): Promise<string>;
}

export type LoadKerberos = () => Promise<Kerberos>;

/** It cannot be used here: the message is the end of a sentence that says why and what to do. */
export class KerberosMissing extends Error {}

export const importKerberos: LoadKerberos = kerberosFrom("kerberos");

/** `name` is no literal where it is imported: the compiler would look for the types of what is not installed. */
export function kerberosFrom(name: string): LoadKerberos {
  return async () => {
    try {
      const loaded = await import(name);
      return loaded.default ?? loaded;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      throw new KerberosMissing(
        code === "ERR_MODULE_NOT_FOUND"
          ? "the optional package kerberos is not installed: run npm install kerberos beside culvert (it is built natively, on Debian with libkrb5-dev)"
          : `the package kerberos does not load: install it again (${message})`,
        { cause: error },
      );
    }
  };
}
