import type { Socket } from "node:net";
import { loadClientTls, TlsFileError, type TlsFiles } from "../../shared/net/tls-material.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { ConfigError } from "../../shared/process/options.ts";
import { CredentialsFile } from "../../shared/way-out/credentials-file.ts";
import type { Environment } from "../../shared/way-out/environment.ts";
import { WayFault } from "../../shared/way-out/fault.ts";
import type { ProxyTls } from "../../shared/way-out/proxy-tls.ts";
import { type Destination, formatWay, type Way } from "../../shared/way-out/way.ts";
import { type Opened, WaysOut } from "../../shared/way-out/ways.ts";
import type { ServerLocation } from "../server-url.ts";

/** The options that say how the agent leaves its network; "" = not given. */
export interface WayOutOptions {
  readonly proxy: readonly string[];
  readonly pac: string;
  readonly proxyCredentialsFile: string;
  readonly proxyCa: string;
  readonly proxyCert: string;
  readonly proxyKey: string;
}

/** How the carriers to one server leave the network. */
export interface ServerWay {
  /** For `dialCarrier`. A way other than the last one is a line in the log. Rejects with a `WayFault`. */
  open(signal: AbortSignal): Promise<Socket>;
  /** What it led to was not the server: another way goes first next time. */
  failed(): void;
}

/** How all carriers of one agent leave its network: each is opened the same way, a resume like the first one. */
export class WayOut {
  readonly #options: WayOutOptions;
  readonly #log: Logger;
  readonly #ways: WaysOut;
  readonly #credentials: CredentialsFile | undefined;
  readonly #said = new Set<string>();

  /** Throws a `ConfigError`. */
  constructor(options: WayOutOptions, { env, log }: { readonly env: Environment; readonly log: Logger }) {
    this.#options = options;
    this.#log = log;
    this.#credentials =
      options.proxyCredentialsFile === "" ? undefined : new CredentialsFile(options.proxyCredentialsFile);
    try {
      this.#ways = new WaysOut({ proxies: options.proxy, pac: options.pac, env });
    } catch (error) {
      throw new ConfigError([`${(error as Error).message}.`], { cause: error });
    }
  }

  /** To this server, which logs call `name`. */
  to(server: ServerLocation, name: string): ServerWay {
    const destination = server.address ?? { host: server.host, port: server.port };
    let taken: Way | undefined;
    return {
      open: async (signal) => {
        const { socket, way } = await this.#open(destination, signal);
        this.#tellChange(name, taken, way);
        taken = way;
        return socket;
      },
      failed: () => {
        if (taken !== undefined) this.#ways.failed(destination, taken);
      },
    };
  }

  #open(to: Destination, signal: AbortSignal): Promise<Opened> {
    const onNote = (note: string): void => this.#sayOnce(note);
    return this.#ways.open(
      to,
      { credentials: this.#credentials, tls: this.#proxyTls(), negotiate: {}, onNote },
      signal,
    );
  }

  #tellChange(server: string, before: Way | undefined, now: Way): void {
    const way = formatWay(now);
    const isNew = before === undefined ? now.kind === "proxy" : formatWay(before) !== way;
    if (isNew) this.#log.info({ server, way }, "way out");
  }

  #sayOnce(note: string): void {
    if (this.#said.has(note)) return;
    this.#said.add(note);
    this.#log.warn(note);
  }

  /** Read anew each time, as the agent's own certificate is. */
  #proxyTls(): ProxyTls {
    const { proxyCa: caFile, proxyCert: certFile, proxyKey: keyFile } = this.#options;
    try {
      const { ca, cert, key } = loadClientTls({ caFile, certFile, keyFile });
      return { ca: ca === undefined ? undefined : [ca], cert, key };
    } catch (error) {
      if (!(error instanceof TlsFileError)) throw error;
      throw new WayFault("proxy_tls", `${FLAGS[error.file]}: ${error.message}`, {
        at: FLAGS[error.file],
        cause: error,
      });
    }
  }
}

const FLAGS = { caFile: "--proxy-ca", certFile: "--proxy-cert", keyFile: "--proxy-key" } as const satisfies Record<
  keyof TlsFiles,
  string
>;
