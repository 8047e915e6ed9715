import type { Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { getOrMake } from "../basics/collections.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { dialTcp } from "./dial-tcp.ts";
import { openThroughProxy, type ProxyOptions } from "./http-proxy.ts";
import type { ProxyTls } from "./http-proxy-connection.ts";
import { Pac, type PacReadOptions } from "./pac.ts";
import { type CredentialsFile, type ProxyLogin, RefusedCredentials } from "./proxy-credentials.ts";
import {
  combineFaults,
  type Environment,
  environmentProxy,
  environmentRoute,
  formatProxy,
  formatRoute,
  type ProxyRoute,
  parseProxyUrl,
  RouteFault,
} from "./proxy-route.ts";
import { openThroughSocks } from "./socks-proxy.ts";

export interface ProxyRoutesOptions {
  /** `--proxy`, tried in this order. */
  readonly proxies: readonly string[];
  /** `--pac`; empty if there is none. */
  readonly pac: string;
  readonly env: Environment;
}

export interface OpenRouteOptions extends Omit<ProxyOptions, keyof ProxyLogin | "tls"> {
  /** Called when it is needed. An error that it throws is the fault of that route. */
  readonly tls?: (() => ProxyTls) | undefined;
  /** The address that a direct route dials in place of the target, whose name chooses the route. */
  readonly directTo?: Target | undefined;
  /** `--proxy-credentials-file`, for each proxy without credentials in its URL whose route is verified. */
  readonly credentials?: CredentialsFile | undefined;
}

interface OpenedRoute {
  readonly socket: Socket;
  readonly route: ProxyRoute;
  /** The faults of the routes that were tried before. */
  readonly failed: readonly RouteFault[];
}

/** Time for a route that has others after it, so that a proxy that never answers does not use up the time of all. */
const EARLIER_ROUTE_MS = 4_000;

/**
 * Chooses the proxy routes to a target and opens connections by them. Exactly one source names the routes: `--proxy`,
 * else the environment (HTTPS_PROXY or ALL_PROXY; NO_PROXY makes it direct), else `--pac`, else the route is direct. A
 * proxy that was named is never bypassed (decision 0012).
 */
export class ProxyRoutes {
  readonly #proxies: readonly ProxyRoute[];
  readonly #env: Environment;
  readonly #pac: Pac | undefined;
  readonly #histories = new Map<string, RouteHistory>();
  readonly #refused: RefusedCredentials;
  readonly #now: () => number;

  /** Throws an Error that names the invalid option or variable without its value. */
  constructor({ proxies, pac, env }: ProxyRoutesOptions, now: () => number = () => performance.now()) {
    this.#proxies = proxies.map((text) => ({
      kind: "proxy",
      proxy: naming("--proxy", parseProxyUrl, text),
      from: "--proxy",
      isUnverified: false,
    }));
    this.#env = env;
    environmentProxy(env);
    this.#pac = pac === "" ? undefined : naming("--pac", (location) => new Pac(location), pac);
    this.#refused = new RefusedCredentials(now);
    this.#now = now;
  }

  /** The routes in the order in which they are tried. Rejects with a `RouteFault` when a PAC script gives no answer. */
  async chooseRoutes(to: Target, signal: AbortSignal, options: PacReadOptions = {}): Promise<readonly ProxyRoute[]> {
    return this.#history(to).order(await this.#namedRoutes(to, signal, options));
  }

  async #namedRoutes(to: Target, signal: AbortSignal, options: PacReadOptions): Promise<readonly ProxyRoute[]> {
    if (this.#proxies.length > 0) return this.#proxies;
    const route = environmentRoute(this.#env, to);
    if (route !== undefined) return [route];
    return this.#pac === undefined ? [{ kind: "direct" }] : this.#pac.routes(to, signal, options);
  }

  /** The route has not reached the target, or has reached something else. For a while it comes after the others. */
  failed(to: Target, route: ProxyRoute): void {
    this.#history(to).failed(route);
  }

  /**
   * A connection by the first route that gives one. A route that was cut short for the sake of others has a second turn
   * after them, and no limit but the signal then or in the next attempt, so that a slow proxy is not lost because of a
   * dead one. Rejects with the combined `RouteFault` of all routes. An abort gives `timeout`.
   */
  async open(to: Target, options: OpenRouteOptions, signal: AbortSignal): Promise<OpenedRoute> {
    const { tls, onNote } = options;
    const turns = [...(await this.chooseRoutes(to, signal, { ca: () => tls?.().ca, onNote }))];
    const history = this.#history(to);
    const failed = new Map<ProxyRoute, RouteFault>();
    for (const route of turns) {
      const limit = new AbortController();
      const isLimited = route !== turns.at(-1) && !history.wasCutShort(route);
      const timer = isLimited ? setTimeout(() => limit.abort(), EARLIER_ROUTE_MS) : undefined;
      const either = AbortSignal.any([signal, limit.signal]);
      try {
        // An attempt that is cut short after it has sent a password would send it again in its second turn.
        const onTrial = (): void => clearTimeout(timer);
        const socket = await this.#openBy(route, to, options, either, onTrial);
        history.worked(route);
        failed.delete(route);
        return { socket, route, failed: [...failed.values()] };
      } catch (error) {
        failed.set(route, toRouteFault(error, route, to, either));
        const isCutShort = limit.signal.aborted && !signal.aborted;
        history.failed(route, isCutShort);
        if (isCutShort) turns.push(route);
        if (signal.aborted) break;
      } finally {
        clearTimeout(timer);
      }
    }
    throw combineFaults([...failed.values()]);
  }

  /** `onTrial`: the proxy gets credentials that it has not accepted before. */
  async #openBy(
    route: ProxyRoute,
    to: Target,
    options: OpenRouteOptions,
    signal: AbortSignal,
    onTrial: () => void,
  ): Promise<Socket> {
    const { credentials: given, tls, directTo = to, ...rest } = options;
    if (route.kind === "direct") return dialTcp(directTo, formatTarget(directTo), signal);
    const { proxy, isUnverified } = route;
    const file = isUnverified ? undefined : given;
    const isWithheld = proxy.credentials === undefined && file !== given;
    const login = this.#refused.attempt(formatProxy(proxy), signal, onTrial);
    const credentials = async (): Promise<ProxyCredentials | undefined> => {
      const found = proxy.credentials ?? (await file?.read(signal));
      if (found !== undefined) await login.begin(found, proxy.credentials === undefined ? "file" : "url");
      return found;
    };
    const access: ProxyLogin = { credentials, isUnverified, isWithheld, login };
    try {
      const proxyTls = proxy.scheme === "https" ? tls?.() : undefined;
      const socket = await (proxy.scheme === "socks5" || proxy.scheme === "socks5h"
        ? openThroughSocks(proxy, to, access, signal)
        : openThroughProxy(proxy, to, { ...rest, ...access, tls: proxyTls }, signal));
      login.end();
      return socket;
    } catch (error) {
      login.end(error instanceof RouteFault ? error.fault : "timeout");
      throw error;
    }
  }

  #history(to: Target): RouteHistory {
    return getOrMake(this.#histories, formatTarget(to), () => new RouteHistory(this.#now));
  }
}

function naming<T>(option: string, parse: (text: string) => T, text: string): T {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${option} ${(error as Error).message}`);
  }
}

/** The fault for what ended an attempt. Any other error without an abort is a bug, and is thrown. */
function toRouteFault(error: unknown, route: ProxyRoute, to: Target, signal: AbortSignal): RouteFault {
  if (error instanceof RouteFault) return error;
  const at = route.kind === "direct" ? formatTarget(to) : formatProxy(route.proxy);
  if (signal.aborted) return new RouteFault("timeout", `${at} gave no connection in time`, { at, cause: error });
  throw error;
}

/** How long a route that failed stays after the others, as in browsers. */
const AVOIDED_MS = 5 * 60_000;

/** The routes that have reached one target, and those that have not. */
export class RouteHistory {
  readonly #now: () => number;
  #worked: string | undefined;
  /** By route; what is of a route that was cut short for the sake of others ends when one of them works. */
  readonly #failures = new Map<string, { readonly at: number; isCutShort: boolean }>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /** First the route that worked last, then those without a failure, then the others by the time of their failure. */
  order(routes: readonly ProxyRoute[]): readonly ProxyRoute[] {
    // A PAC script may name new proxies without end.
    for (const [name, { at }] of this.#failures) if (this.#now() - at >= AVOIDED_MS) this.#failures.delete(name);
    return routes.toSorted((one, other) => this.#rank(one) - this.#rank(other));
  }

  worked(route: ProxyRoute): void {
    this.#worked = formatRoute(route);
    this.#failures.delete(this.#worked);
    for (const failure of this.#failures.values()) failure.isCutShort = false;
  }

  /** `isCutShort`: others were to have their turn. The next attempt by it has no such limit. */
  failed(route: ProxyRoute, isCutShort = false): void {
    const name = formatRoute(route);
    if (this.#worked === name) this.#worked = undefined;
    this.#failures.set(name, { at: this.#now(), isCutShort });
  }

  wasCutShort(route: ProxyRoute): boolean {
    return this.#failures.get(formatRoute(route))?.isCutShort === true;
  }

  #rank(route: ProxyRoute): number {
    const name = formatRoute(route);
    return name === this.#worked ? -2 : (this.#failures.get(name)?.at ?? -1);
  }
}
