import { canonicalServerName } from "../../shared/address/server-name.ts";

/** A value that is served under some names of a port. */
export interface NamedValue<T> {
  readonly value: T;
  /**
   * Canonical, or `*.` and a canonical name. Without names the value is served under every name while it is the only
   * one.
   */
  readonly names: readonly string[];
}

/**
 * The names of one TLS port: SNI → the value that is served under it. Exact names win over `*.x`, which stands for one
 * label as in a Kubernetes Ingress. An unknown name has no value: there is no default.
 */
export class ServerNames<T> {
  /** The only value, served under every name and without one, so that no name has to be read. */
  readonly single: T | undefined;
  readonly #exact = new Map<string, T>();
  /** By the part after the star, with its dot. */
  readonly #wildcards = new Map<string, T>();

  /** No name may be there twice. */
  constructor(entries: readonly NamedValue<T>[]) {
    const [first, ...others] = entries;
    this.single = first !== undefined && others.length === 0 && first.names.length === 0 ? first.value : undefined;
    for (const { names, value } of entries) {
      for (const name of names) {
        if (name.startsWith("*.")) this.#wildcards.set(name.slice(1), value);
        else this.#exact.set(name, value);
      }
    }
  }

  /** `serverName` is as the client spelt it; `undefined` if it sent none. */
  find(serverName: string | undefined): T | undefined {
    if (this.single !== undefined) return this.single;
    const name = serverName === undefined ? undefined : canonicalServerName(serverName).name;
    if (name === undefined) return undefined;
    const dot = name.indexOf(".");
    return this.#exact.get(name) ?? (dot > 0 ? this.#wildcards.get(name.slice(dot)) : undefined);
  }
}
