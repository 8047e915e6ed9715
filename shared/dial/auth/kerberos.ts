import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** What is used of the package `kerberos`: it is an optional peer, so that its types need not be there to build. */
export interface Kerberos {
  readonly GSS_MECH_OID_SPNEGO: number;
  initializeClient(service: string, options: { mechOID: number }): Promise<KerberosClient>;
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
          ? `the optional package kerberos is not installed: run "${installLine(packageFolder())}" (it may be built here: on Debian that needs build-essential, python3 and libkrb5-dev)`
          : `the package kerberos does not load: install it again (${message.slice(0, 200)})`,
        { cause: error },
      );
    }
  };
}

/**
 * Into the folder above ours, where a module of ours finds it as well: npm takes away from a folder what its lock file
 * does not know, and would make ours anew.
 */
export function installLine(folder: string): string {
  const above = dirname(folder);
  // The name of our package has a scope, which is one more folder.
  const modules = basename(above).startsWith("@") ? dirname(above) : above;
  if (basename(modules) !== "node_modules") return `npm install --prefix ${quoted(above)} ${PACKAGE}`;
  const project = dirname(modules);
  const isProject = existsSync(join(project, "package.json"));
  return isProject ? `npm install --prefix ${quoted(project)} ${PACKAGE}` : `npm install --global ${PACKAGE}`;
}

/** In the major that package.json names. */
const PACKAGE = "kerberos@7";

function quoted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** Ours: the nearest one above this file that is a package. */
function packageFolder(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, "package.json")) && folder !== dirname(folder)) folder = dirname(folder);
  return folder;
}
