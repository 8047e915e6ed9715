import { readFileSync } from "node:fs";
import { readFailure } from "../net/read-failure.ts";
import { WayFault } from "./fault.ts";
import type { ProxyCredentials } from "./way.ts";

/**
 * `--proxy-credentials-file`: one line, `user:password`; the password may hold colons. Read again at each attempt, so
 * that a password can be changed while we run.
 */
export class CredentialsFile {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** Throws a `WayFault` that names option and file, and shows nothing of what is in it. */
  read(): ProxyCredentials {
    const line = this.#content()
      .replace(/^\uFEFF/, "")
      .replace(/\r?\n$/, "");
    if (line === "") throw this.#fault("is empty: write user:password into it");
    if (/[\r\n]/.test(line)) throw this.#fault("has more than one line: write user:password into it");
    const colon = line.indexOf(":");
    if (colon < 0) throw this.#fault("has no colon: write user:password into it");
    return { user: line.slice(0, colon), password: line.slice(colon + 1) };
  }

  #content(): string {
    try {
      return readFileSync(this.#path, "utf8");
    } catch (error) {
      throw this.#fault(`cannot be read: ${readFailure(error)}`);
    }
  }

  #fault(what: string): WayFault {
    return new WayFault("proxy_auth_required", `--proxy-credentials-file ${this.#path} ${what}`, { at: this.#path });
  }
}
