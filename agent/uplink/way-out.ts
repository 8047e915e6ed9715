import type { Passage } from "../../shared/link/dial.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { ConfigError } from "../../shared/process/options.ts";
import { StrangerLog } from "../../shared/process/stranger-log.ts";
import { TicketPace } from "../../shared/way-out/auth/ticket-pace.ts";
import { CredentialsFile } from "../../shared/way-out/credentials-file.ts";
import type { Environment } from "../../shared/way-out/environment.ts";
import type { WayFault } from "../../shared/way-out/fault.ts";
import type { ProxyTls } from "../../shared/way-out/proxy-tls.ts";
import { type Destination, formatProxy, formatWay, type Way } from "../../shared/way-out/way.ts";
import { type Opened, type OpenOptions, WaysOut } from "../../shared/way-out/ways.ts";
import type { ServerLocation } from "../server-url.ts";
import { KeptProxyTls } from "./kept-proxy-tls.ts";

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
  open(signal: AbortSignal): Promise<Passage>;
  /** What it led to was not the server: another way goes first next time. */
  failed(): void;
}

/** How all carriers of one agent leave its network: each is opened the same way, a resume like the first one. */
export class WayOut {
  readonly #log: Logger;
  /** Of ways: each attempt takes one. */
  readonly #taken: StrangerLog;
  readonly #ways: WaysOut;
  readonly #credentials: CredentialsFile | undefined;
  readonly #tls: KeptProxyTls;
  readonly #tickets: TicketPace;
  readonly #said = new Set<string>();

  /** Throws a `ConfigError`. */
  constructor(options: WayOutOptions, { env, log }: { readonly env: Environment; readonly log: Logger }) {
    this.#log = log;
    this.#taken = new StrangerLog(log);
    const { proxyCa: caFile, proxyCert: certFile, proxyKey: keyFile } = options;
    this.#tls = new KeptProxyTls({ caFile, certFile, keyFile }, log);
    this.#tickets = new TicketPace(env);
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
        let authentication: string | undefined;
        const { socket, way, failed } = await this.#open(destination, signal, (scheme, offered) => {
          authentication = `${scheme} (offered: ${offered})`;
        });
        this.#tellChange({ server: name, ...(authentication !== undefined && { authentication }) }, taken, way, failed);
        taken = way;
        return { socket, proxy: way.kind === "proxy" ? { at: formatProxy(way.proxy), from: way.from } : undefined };
      },
      failed: () => {
        if (taken !== undefined) this.#ways.failed(destination, taken);
      },
    };
  }

  #open(
    to: Destination,
    signal: AbortSignal,
    onAuthenticated: NonNullable<OpenOptions["onAuthenticated"]>,
  ): Promise<Opened> {
    const onNote = (note: string): void => this.#sayOnce(note);
    const tls = (): ProxyTls => this.#tls.current();
    return this.#ways.open(
      to,
      { credentials: this.#credentials, tls, negotiate: this.#tickets, onNote, onAuthenticated },
      signal,
    );
  }

  /** With what is wrong with those that should have come first: nobody else tells, since this one is good. */
  #tellChange(line: object, before: Way | undefined, now: Way, failed: readonly WayFault[]): void {
    const way = formatWay(now);
    const isNew = before === undefined ? now.kind === "proxy" : formatWay(before) !== way;
    const reason = printable(failed.map(({ message }) => message).join("; "), MAX_REASON);
    if (isNew || reason !== "")
      this.#taken.tell("info", { ...line, way, ...(reason === "" ? {} : { reason }) }, "way out");
  }

  #sayOnce(note: string): void {
    if (this.#said.has(note)) return;
    this.#said.add(note);
    this.#log.warn(note);
  }
}

/** Of several ways' faults together, as for an attempt that failed. */
const MAX_REASON = 1_100;
