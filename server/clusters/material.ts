import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { type CrlFile, loadCrls } from "../../shared/tls/revocation-list.ts";
import { loadClientTls, loadPair, type TlsPair } from "../../shared/tls/tls-material.ts";

/**
 * Certificates, keys and CAs by their paths, each checked once for each content: OpenSSL takes milliseconds over a key, and
 * a thousand clusters may name the same files. The same content gives the same object.
 */
export class MaterialFiles {
  /** By the path of the key. */
  readonly #pairs = new Map<string, TlsPair>();
  readonly #authorities = new Map<string, string>();
  readonly #crls = new Map<string, CrlFile>();

  /** Throws a `TlsFileError`, as `authorities` does. */
  pair(certFile: string, keyFile: string): TlsPair {
    const known = this.#pairs.get(keyFile);
    if (known !== undefined && holds(certFile, known.cert) && holds(keyFile, known.key)) return known;
    const pair = loadPair(certFile, keyFile);
    this.#pairs.set(keyFile, pair);
    return pair;
  }

  authorities(caFile: string): string {
    const known = this.#authorities.get(caFile);
    if (known !== undefined && holds(caFile, known)) return known;
    const { ca = "" } = loadClientTls({ caFile });
    this.#authorities.set(caFile, ca);
    return ca;
  }

  /** Throws a `CrlFileError`. */
  crls(path: string): CrlFile {
    const known = this.#crls.get(path);
    if (known !== undefined && holds(path, known.pem)) return known;
    const crls = loadCrls(path);
    this.#crls.set(path, crls);
    return crls;
  }

  /** Forgets all that nobody names any more. */
  retain(paths: ReadonlySet<string>): void {
    for (const known of [this.#pairs, this.#authorities, this.#crls]) {
      for (const path of known.keys()) if (!paths.has(path)) known.delete(path);
    }
  }
}

function holds(path: string, content: string): boolean {
  try {
    return readBoundedSync(path).toString("utf8") === content;
  } catch {
    return false;
  }
}
