import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { shellQuoted } from "../../basics/text.ts";

/** The part of the package `kerberos` in use. It is an optional peer, so its types may be absent at build time. */
export interface Kerberos {
  readonly GSS_MECH_OID_SPNEGO: number;
  initializeClient(service: string, options: { mechOID: number }): Promise<KerberosClient>;
}

export interface KerberosClient {
  readonly contextComplete: boolean;
  /** Input and output are base64. */
  step(challenge: string): Promise<string>;
}

export type LoadKerberos = () => Promise<Kerberos>;

/** Kerberos cannot be used here. The message is the end of a sentence that says why and what to do. */
export class KerberosMissing extends Error {}

export const importKerberos: LoadKerberos = kerberosFrom("kerberos");

/**
 * `import()` gets a variable: for a literal the compiler would require the types of a package that is not installed.
 */
export function kerberosFrom(name: string): LoadKerberos {
  return async () => {
    try {
      const loaded = await import(name);
      return loaded.default ?? loaded;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      throw new KerberosMissing(
        code === "ERR_MODULE_NOT_FOUND"
          ? `the optional package kerberos is not installed: run "${installLine(packageFolder())}" (it may be built here: on Debian that needs build-essential, python3 and libkrb5-dev)`
          : `the package kerberos does not load: install it again (${message.slice(0, 200)})`,
        { cause: error },
      );
    }
  };
}

/**
 * The command that installs the package into the folder above ours, where our modules also find it. In our own folder
 * npm would remove it, because our lock file does not name it.
 */
export function installLine(folder: string): string {
  const above = dirname(folder);
  // The name of our package has a scope, which is one more folder.
  const modules = basename(above).startsWith("@") ? dirname(above) : above;
  if (basename(modules) !== "node_modules") return `npm install --prefix ${shellQuoted(above)} ${PACKAGE}`;
  const project = dirname(modules);
  const isProject = existsSync(join(project, "package.json"));
  return isProject ? `npm install --prefix ${shellQuoted(project)} ${PACKAGE}` : `npm install --global ${PACKAGE}`;
}

/** The major version is the one in package.json. */
const PACKAGE = "kerberos@7";

/** The folder of this package. */
function packageFolder(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, "package.json")) && folder !== dirname(folder)) folder = dirname(folder);
  return folder;
}
