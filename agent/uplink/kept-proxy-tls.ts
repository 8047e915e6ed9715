import { RouteFault } from "../../shared/dial/fault.ts";
import type { ProxyTls } from "../../shared/dial/proxy-tls.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { loadClientTls, TlsFileError, type TlsFiles } from "../../shared/tls/tls-material.ts";

interface Held extends ProxyTls {
  readonly notAfter: Date | undefined;
}

/**
 * TLS to `https://` proxies: what the files hold, read anew each time, as the agent's own certificate is. While that cannot
 * be used it is what they held before, as long as it is valid.
 */
export class KeptProxyTls {
  readonly #files: TlsFiles;
  readonly #log: Logger;
  #held: Held | undefined;
  #said = "";

  constructor(files: TlsFiles, log: Logger) {
    this.#files = files;
    this.#log = log;
  }

  /** Throws a `RouteFault` when the files cannot be used and nothing valid was read before. */
  current(): ProxyTls {
    try {
      const { ca, cert, key, notAfter } = loadClientTls(this.#files);
      this.#held = { ca: ca === undefined ? undefined : [ca], cert, key, notAfter };
      this.#said = "";
      return this.#held;
    } catch (error) {
      if (!(error instanceof TlsFileError)) throw error;
      return this.#old(error);
    }
  }

  #old(error: TlsFileError): ProxyTls {
    const flag = FLAGS[error.file];
    const reason = `${flag}: ${error.message}`;
    if (this.#held === undefined || (this.#held.notAfter !== undefined && this.#held.notAfter <= new Date()))
      throw new RouteFault("proxy_tls", reason, { at: flag, cause: error });
    if (reason !== this.#said)
      this.#log.error({ reason }, "new files for TLS to proxies are not usable, the old ones stay");
    this.#said = reason;
    return this.#held;
  }
}

const FLAGS = { caFile: "--proxy-ca", certFile: "--proxy-cert", keyFile: "--proxy-key" } as const satisfies Record<
  keyof TlsFiles,
  string
>;
