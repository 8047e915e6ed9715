import type { Target } from "../../shared/address/target.ts";
import { RecentMap } from "../../shared/basics/recent-map.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { KerberosTickets } from "../../shared/dial/auth/kerberos.ts";
import type { ProxyTls } from "../../shared/dial/http-proxy-connection.ts";
import { CredentialsFile } from "../../shared/dial/proxy-credentials.ts";
import {
  type Environment,
  formatProxy,
  formatRoute,
  ProxyFileFault,
  type ProxyRoute,
  type RouteFault,
} from "../../shared/dial/proxy-route.ts";
import { type OpenedRoute, type OpenRouteOptions, ProxyRoutes } from "../../shared/dial/proxy-routes.ts";
import type { Passage } from "../../shared/link/dial.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { loadClientTls, TlsFileError, type TlsFiles } from "../../shared/tls/tls-material.ts";
import { dialTargetOf, type ServerLocation } from "./servers.ts";

/** The options that say how the agent leaves its network; "" = not given. */
export interface RouteOptions {
  readonly proxy: readonly string[];
  readonly pac: string;
  readonly proxyCredentialsFile: string;
  readonly proxyCa: string;
  readonly proxyCert: string;
  readonly proxyKey: string;
}

/** How the carriers to one server leave the network. */
export interface ServerRoute {
  /** For `dialCarrier`. Rejects with a `RouteFault`. */
  open(signal: AbortSignal): Promise<Passage>;
  /** It led to the server: a line in the log, if another one did before. */
  worked(): void;
  /** What it led to was not the server: another way goes first next time. */
  failed(): void;
}

/** A way that has opened a connection. */
interface Taken {
  readonly way: ProxyRoute;
  /** By which scheme it was entered, of those that it has offered. */
  readonly authentication: string | undefined;
}

/** The routes of all carriers of one agent, for a resume as for the first carrier. */
export class AgentRoutes {
  readonly #log: Logger;
  /** Of ways: a server may be lost, and found by another one, many times a second. */
  readonly #changes: ThrottledLog;
  /** By which one each server was reached last. */
  readonly #working = new Map<string, string>();
  readonly #ways: ProxyRoutes;
  readonly #credentials: CredentialsFile | undefined;
  readonly #tls: KeptProxyTls;
  readonly #tickets: KerberosTickets;
  /**
   * Notes that were logged. They have words of proxies and of a script's server, which may find new ones without end.
   */
  readonly #noted = new RecentMap<string, true>(MAX_NOTES);

  /** Throws a `ConfigError`. */
  constructor(options: RouteOptions, { env, log }: { readonly env: Environment; readonly log: Logger }) {
    this.#log = log;
    this.#changes = new ThrottledLog(log);
    const { proxyCa: caFile, proxyCert: certFile, proxyKey: keyFile } = options;
    this.#tls = new KeptProxyTls({ caFile, certFile, keyFile }, log);
    this.#tickets = new KerberosTickets(env);
    this.#credentials =
      options.proxyCredentialsFile === "" ? undefined : new CredentialsFile(options.proxyCredentialsFile);
    try {
      this.#ways = new ProxyRoutes({ proxies: options.proxy, pac: options.pac, env });
    } catch (error) {
      throw new ConfigError([`${(error as Error).message}.`], { cause: error });
    }
  }

  /** No proxy leads to this server: this machine resolves its name. */
  async isDirect(server: ServerLocation, signal: AbortSignal): Promise<boolean> {
    const onNote = (note: string): void => this.#warnOnce(note);
    const ca = (): ProxyTls["ca"] => this.#tls.current().ca;
    const ways = await this.#ways.chooseRoutes(dialTargetOf(server), signal, { ca, onNote });
    return ways.every(({ kind }) => kind === "direct");
  }

  /**
   * To this server, which logs call `name`. `directTo`: the one of its addresses to dial where no proxy leads there.
   */
  to(server: ServerLocation, name: string, directTo?: Target): ServerRoute {
    const destination = dialTargetOf(server);
    let taken: Taken | undefined;
    let passedOver: readonly RouteFault[] = [];
    return {
      open: async (signal) => {
        let authentication: string | undefined;
        const {
          socket,
          route: way,
          failed,
        } = await this.#open(destination, directTo, signal, (scheme, offered) => {
          authentication = `${scheme} (offered: ${offered})`;
        });
        taken = { way, authentication };
        if (failed.length > 0) passedOver = failed; // an attempt may open several, and those come last in the next one
        return { socket, proxy: way.kind === "proxy" ? { at: formatProxy(way.proxy), from: way.from } : undefined };
      },
      worked: () => {
        if (taken !== undefined) this.#logChange(name, taken, passedOver);
        passedOver = [];
      },
      failed: () => {
        if (taken !== undefined) this.#ways.failed(destination, taken.way);
        passedOver = [];
      },
    };
  }

  #open(
    to: Target,
    directTo: Target | undefined,
    signal: AbortSignal,
    onAuthenticated: NonNullable<OpenRouteOptions["onAuthenticated"]>,
  ): Promise<OpenedRoute> {
    const onNote = (note: string): void => this.#warnOnce(note);
    const tls = (): ProxyTls => this.#tls.current();
    return this.#ways.open(
      to,
      { directTo, credentials: this.#credentials, tls, tickets: this.#tickets, onNote, onAuthenticated },
      signal,
    );
  }

  /** The line has the faults of the routes that come first: no other line has them, because this route works. */
  #logChange(server: string, { way: now, authentication }: Taken, passedOver: readonly RouteFault[]): void {
    const before = this.#working.get(server);
    const way = formatRoute(now);
    this.#working.set(server, way);
    const reason = printable(passedOver.map(({ message }) => message).join("; "), MAX_REASON);
    // The direct way is no news, unless there should have been a proxy.
    if (before === way || (before === undefined && now.kind === "direct" && reason === "")) return;
    const login = authentication === undefined ? {} : { authentication };
    this.#changes.write("info", { server, ...login, way, ...(reason === "" ? {} : { reason }) }, "proxy route");
  }

  #warnOnce(note: string): void {
    if (this.#noted.get(note)) return;
    this.#noted.set(note, true);
    this.#log.warn(note);
  }
}

/** Of several ways' faults together, as for an attempt that failed. */
const MAX_REASON = 1_100;
const MAX_NOTES = 64;

interface Held extends ProxyTls {
  readonly notAfter: Date | undefined;
}

/**
 * TLS to `https://` proxies: what the files hold, read anew each time, as the agent's own certificate is. While that
 * cannot be used it is what they held before, as long as it is valid.
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
      throw new ProxyFileFault("proxy_tls", reason, { at: flag, cause: error });
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
