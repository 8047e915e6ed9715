import { canonicalServerName } from "../../shared/address/server-name.ts";

/** What is served under some names of a port. */
export interface Named<T> {
  readonly value: T;
  /** Canonical, or `*.` and a canonical name. None: every name, as long as there is nothing else on this port. */
  readonly names: readonly string[];
}

/**
 * The names of one TLS port: SNI → what is served under it. Exact names win over `*.x`, which stands for one label, as in
 * a Kubernetes Ingress. A name that is nobody's has no value: there is no default.
 */
export class ServerNames<T> {
  /** Any name and no name lead here, and nobody needs to read one. */
  readonly single: T | undefined;
  readonly #exact = new Map<string, T>();
  /** By what follows the star, with its dot. */
  readonly #wildcards = new Map<string, T>();

  /** No name may be there twice. */
  constructor(entries: readonly Named<T>[]) {
    const [first, ...others] = entries;
    this.single = first !== undefined && others.length === 0 && first.names.length === 0 ? first.value : undefined;
    for (const { names, value } of entries) {
      for (const name of names) {
        if (name.startsWith("*.")) this.#wildcards.set(name.slice(1), value);
        else this.#exact.set(name, value);
      }
    }
  }

  /** `serverName` as the client spelt it; `undefined`: it named nobody. */
  find(serverName: string | undefined): T | undefined {
    if (this.single !== undefined) return this.single;
    const name = serverName === undefined ? undefined : canonicalServerName(serverName).name;
    if (name === undefined) return undefined;
    const dot = name.indexOf(".");
    return this.#exact.get(name) ?? (dot > 0 ? this.#wildcards.get(name.slice(dot)) : undefined);
  }
}

/** A name of the configuration as it is compared; throws a sentence for its author. */
export function parseServerName(text: string): string {
  const wildcard = text.startsWith("*.");
  const host = wildcard ? text.slice(2) : text;
  if (host.includes("*")) {
    throw new Error(`"${text}": a star stands alone for the first label (write for example "*.clusters.example")`);
  }
  const { name, fault } = canonicalServerName(host);
  if (fault !== undefined) throw new Error(`"${text}" ${fault} (write for example "blue.clusters.example")`);
  return wildcard ? `*.${name}` : name;
}
