import { BoundedFile, FileTooLargeError, readFailure } from "../documents/read-bounded.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { CONTROL_CHARACTER, ProxyFileFault, type RouteFault } from "./proxy-route.ts";

/** A wrong path may lead to a large file. */
const MAX_BYTES = 4096;
/** Shorter than the time of any proxy route, so that the fault names the file and not the proxy. */
const TIMEOUT_MS = 3_000;

/**
 * `--proxy-credentials-file`: one line, `user:password`; the password may contain colons. The file is read for each
 * attempt, so that a new password needs no restart.
 */
export class CredentialsFile {
  readonly #file: BoundedFile;

  constructor(path: string) {
    this.#file = new BoundedFile(path, MAX_BYTES);
  }

  /** Rejects with a `RouteFault` that names option and file, without the content. */
  async read(signal: AbortSignal): Promise<ProxyCredentials> {
    const line = this.#decode(await this.#content(signal)).replace(/\r?\n$/, "");
    if (line === "") throw this.#fault("is empty: write user:password into it");
    // This comes first, because UTF-16 without a byte order mark has a NUL in each character, also in line breaks.
    if (CONTROL_CHARACTER.test(line.replace(/[\r\n]/g, ""))) {
      throw this.#fault("holds a control character: write user:password into it, without any, as UTF-8");
    }
    if (/[\r\n]/.test(line)) throw this.#fault("has more than one line: write user:password into it");
    const colon = line.indexOf(":");
    if (colon < 0) throw this.#fault("has no colon: write user:password into it");
    return { user: line.slice(0, colon), password: line.slice(colon + 1) };
  }

  async #content(signal: AbortSignal): Promise<Buffer> {
    const limit = AbortSignal.timeout(TIMEOUT_MS);
    return await this.#file.read(AbortSignal.any([signal, limit])).catch((error) => {
      if (error instanceof FileTooLargeError) {
        throw this.#fault("is larger than 4 KiB: write only user:password into it");
      }
      const isLate = signal.aborted || limit.aborted;
      throw this.#fault(isLate ? "could not be read in time: check its disk" : `cannot be read: ${readFailure(error)}`);
    });
  }

  /** TextDecoder removes the byte order mark that Windows writes. */
  #decode(content: Buffer): string {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch {
      throw this.#fault("is not UTF-8: write user:password into it in that encoding");
    }
  }

  #fault(what: string): RouteFault {
    const { path } = this.#file;
    return new ProxyFileFault("proxy_auth_required", `--proxy-credentials-file ${path} ${what}`, { at: path });
  }
}
