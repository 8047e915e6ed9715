import type { Target } from "../../shared/address/target.ts";
import { RecentMap } from "../../shared/basics/collections.ts";
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
import { type OpenRouteOptions, ProxyRoutes } from "../../shared/dial/proxy-routes.ts";
import type { Passage } from "../../shared/link/dial.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { loadClientTls, TlsFileError, type TlsFiles, type Validity } from "../../shared/tls/tls-material.ts";
import type { AgentOptions } from "../context/options.ts";
import { dialTargetOf, type ServerLocation } from "../context/servers.ts";
import { KeptFiles } from "./kept-files.ts";

/** Files with what the agent proves to proxies, and proxies to the agent; "" = not given. */
export type ProxyFiles = Pick<AgentOptions, "proxyCredentialsFile" | "proxyCa" | "proxyCert" | "proxyKey">;

/** The options that say how the agent leaves its network; "" = not given. */
export type RouteOptions = ProxyFiles & Pick<AgentOptions, "proxy" | "pac">;

/** How the carriers to one server leave the network. */
export interface ServerRoute {
  /** For `dialCarrier`. Rejects with a `RouteFault`. */
  open(signal: AbortSignal): Promise<Passage>;
  /** The route has reached the server: writes a log line if another route did before. Returns how. */
  worked(): RouteTaken | undefined;
  /** The route has not reached the server: another route is tried first next time. */
  failed(): void;
}

/** The route of a connection, as the log has it. */
export interface RouteTaken {
  readonly way: string;
  /** The authentication scheme that the proxy accepted, of those that it has offered. */
  readonly authentication?: string;
  /** The faults of the routes that come first. */
  readonly reason?: string;
}

/** The routes of all carriers of one agent, for a resume as for the first carrier. */
export class AgentRoutes {
  readonly #onNote: (note: string) => void;
  /** Of ways: a server may be lost, and found by another one, many times a second. */
  readonly #changes: ThrottledLog;
  /** By which one each server was reached last. */
  readonly #working = new Map<string, string>();
  readonly #ways: ProxyRoutes;
  readonly #credentials: CredentialsFile | undefined;
  readonly #tls: KeptProxyTls;
  readonly #tickets: KerberosTickets;
  /**
   * Notes that were sent. They have words of proxies and of a script's server, which may find new ones without end.
   */
  readonly #noted = new RecentMap<string, true>(MAX_NOTES);

  /** Throws a `ConfigError`. `onNote` gets what an operator should know of proxies and scripts, each note once. */
  constructor(options: RouteOptions, env: Environment, log: Logger, onNote = (note: string) => log.warn(note)) {
    this.#onNote = (note) => {
      if (this.#noted.get(note)) return;
      this.#noted.set(note, true);
      onNote(note);
    };
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

  /** The routes to this server, in the order in which they are tried. Rejects with a `RouteFault`. */
  choose(server: ServerLocation, signal: AbortSignal): Promise<readonly ProxyRoute[]> {
    const ca = (): ProxyTls["ca"] => this.#tls.current().ca;
    return this.#ways.chooseRoutes(dialTargetOf(server), signal, { ca, onNote: this.#onNote });
  }

  /** No proxy is used for this server: this machine resolves its name. */
  async isDirect(server: ServerLocation, signal: AbortSignal): Promise<boolean> {
    return (await this.choose(server, signal)).every(({ kind }) => kind === "direct");
  }

  /**
   * To this server, which logs call `name`. `directTo`: the one of its addresses to dial where no proxy leads there.
   */
  to(server: ServerLocation, name: string, directTo?: Target): ServerRoute {
    const destination = dialTargetOf(server);
    const options: OpenRouteOptions = {
      directTo,
      credentials: this.#credentials,
      tls: () => this.#tls.current(),
      tickets: this.#tickets,
      onNote: this.#onNote,
    };
    let taken: { readonly route: ProxyRoute; readonly authentication: string | undefined } | undefined;
    let passedOver: readonly RouteFault[] = [];
    return {
      open: async (signal) => {
        let authentication: string | undefined;
        const onAuthenticated = (scheme: string, offered: string): void => {
          authentication = `${scheme} (offered: ${offered})`;
        };
        const { socket, route, failed } = await this.#ways.open(destination, { ...options, onAuthenticated }, signal);
        taken = { route, authentication };
        if (failed.length > 0) passedOver = failed; // an attempt may open several, and those come last in the next one
        return {
          socket,
          proxy: route.kind === "proxy" ? { at: formatProxy(route.proxy), from: route.from } : undefined,
        };
      },
      worked: () => {
        const reason = printable(passedOver.map(({ message }) => message).join("; "), MAX_REASON);
        passedOver = [];
        if (taken === undefined) return undefined;
        const { route, authentication } = taken;
        const words = {
          ...(authentication && { authentication }),
          way: formatRoute(route),
          ...(reason === "" ? {} : { reason }),
        };
        this.#logChange(name, words, route.kind);
        return words;
      },
      failed: () => {
        if (taken !== undefined) this.#ways.failed(destination, taken.route);
        passedOver = [];
      },
    };
  }

  /** The line has the faults of the routes that come first: no other line has them, because this route works. */
  #logChange(server: string, taken: RouteTaken, kind: ProxyRoute["kind"]): void {
    const before = this.#working.get(server);
    this.#working.set(server, taken.way);
    // The direct way is no news, unless there should have been a proxy.
    if (before === taken.way || (before === undefined && kind === "direct" && taken.reason === undefined)) return;
    this.#changes.write("info", { server, ...taken }, "proxy route");
  }
}

/** Of several ways' faults together, as for an attempt that failed. */
const MAX_REASON = 1_100;
const MAX_NOTES = 64;

/** TLS to `https://` proxies, from files that are kept as the agent's own certificate is. */
export class KeptProxyTls extends KeptFiles<ProxyTls & Partial<Validity>> {
  constructor(files: TlsFiles, log: Logger) {
    super({
      read: () => readProxyTls(files),
      endOf: ({ notAfter }) => notAfter,
      onUnusable: (reason, isOldValid) => {
        if (isOldValid) log.error({ reason }, "new files for TLS to proxies are not usable, the old ones stay");
      },
    });
  }
}

/** Throws a `RouteFault`. */
function readProxyTls(files: TlsFiles): ProxyTls & Partial<Validity> {
  try {
    const { ca, ...others } = loadClientTls(files);
    return { ca: ca === undefined ? undefined : [ca], ...others };
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    const flag = FLAGS[error.file];
    throw new ProxyFileFault("proxy_tls", `${flag}: ${error.message}`, { at: flag, cause: error });
  }
}

const FLAGS = { caFile: "--proxy-ca", certFile: "--proxy-cert", keyFile: "--proxy-key" } as const satisfies Record<
  keyof TlsFiles,
  string
>;
