import { FileTooLargeError, readFailure } from "../documents/read-bounded.ts";
import { BoundedFile } from "./bounded-file.ts";
import { RouteFault } from "./fault.ts";
import { CONTROL_CHARACTER, type ProxyCredentials } from "./proxy-route.ts";

/** A wrong path may lead to anything. */
const MAX_BYTES = 4096;
/** Shorter than any way's time, so that it is not the proxy that is named. */
const TIMEOUT_MS = 3_000;

/**
 * `--proxy-credentials-file`: one line, `user:password`; the password may hold colons. Read again at each attempt, so
 * that a password can be changed while we run.
 */
export class CredentialsFile {
  readonly #file: BoundedFile;

  constructor(path: string) {
    this.#file = new BoundedFile(path, MAX_BYTES);
  }

  /** Rejects with a `RouteFault` that names option and file, and shows nothing of what is in it. */
  async read(signal: AbortSignal): Promise<ProxyCredentials> {
    const line = this.#decode(await this.#content(signal)).replace(/\r?\n$/, "");
    if (line === "") throw this.#fault("is empty: write user:password into it");
    // Before lines are spoken of: UTF-16 without a mark has them, too, and a NUL in each character.
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
      if (error instanceof FileTooLargeError)
        throw this.#fault("is larger than 4 KiB: write only user:password into it");
      const isLate = signal.aborted || limit.aborted;
      throw this.#fault(isLate ? "could not be read in time: check its disk" : `cannot be read: ${readFailure(error)}`);
    });
  }

  /** Without the mark that Windows puts first. */
  #decode(content: Buffer): string {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch {
      throw this.#fault("is not UTF-8: write user:password into it in that encoding");
    }
  }

  #fault(what: string): RouteFault {
    const { path } = this.#file;
    return new RouteFault("proxy_auth_required", `--proxy-credentials-file ${path} ${what}`, { at: path });
  }
}
