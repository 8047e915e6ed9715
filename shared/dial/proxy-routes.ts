import type { Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import type { CredentialsFile } from "./credentials-file.ts";
import { dialTcp } from "./dial-tcp.ts";
import { type Environment, environmentProxy, proxyFromEnvironment } from "./environment.ts";
import { RouteFault } from "./fault.ts";
import { openThroughProxy, type ProxyOptions } from "./http-proxy.ts";
import { Pac } from "./pac.ts";
import type { PacReading } from "./pac-source.ts";
import { formatProxy, type ProxyCredentials, type ProxyRoute } from "./proxy-route.ts";
import type { ProxyTls } from "./proxy-tls.ts";
import { parseProxyUrl } from "./proxy-url.ts";
import { RefusedCredentials } from "./refused-credentials.ts";
import { openThroughSocks } from "./socks-proxy.ts";
import { combineFaults, toRouteFault } from "./ways-fault.ts";
import { RouteHistory } from "./ways-memory.ts";

export interface ProxyRoutesOptions {
  /** `--proxy`, tried in this order. */
  readonly proxies: readonly string[];
  /** `--pac`; empty: none. */
  readonly pac: string;
  readonly env: Environment;
}

export interface OpenRouteOptions extends Omit<ProxyOptions, "credentials" | "isNamedInClear" | "showing" | "tls"> {
  /** Asked when there is need of it. What it throws is that way's fault. */
  readonly tls?: (() => ProxyTls) | undefined;
  /** `--proxy-credentials-file`: for every proxy whose URL holds none, unless a PAC script without TLS names it. */
  readonly credentials?: CredentialsFile | undefined;
}

export interface OpenedRoute {
  readonly socket: Socket;
  readonly way: ProxyRoute;
  /** Of the ways that were tried before. */
  readonly failed: readonly RouteFault[];
}

/** For a way that has others behind it: a black hole must not eat the time of all. */
const EARLIER_WAY_MS = 4_000;

/**
 * The ways out of this network to a destination: who names one first is the only one that is heard. That is `--proxy`,
 * else the environment (HTTPS_PROXY or ALL_PROXY; NO_PROXY makes it direct), else `--pac`, else the direct way. Nothing
 * passes beside a proxy that somebody has named.
 */
export class ProxyRoutes {
  readonly #proxies: readonly ProxyRoute[];
  readonly #env: Environment;
  readonly #pac: Pac | undefined;
  readonly #memories = new Map<string, RouteHistory>();
  readonly #refused: RefusedCredentials;
  readonly #now: () => number;

  /** Throws an Error that names the option or the variable that is wrong, and does not show it. */
  constructor({ proxies, pac, env }: ProxyRoutesOptions, now: () => number = () => performance.now()) {
    this.#proxies = proxies.map((text) => ({
      kind: "proxy",
      proxy: about("--proxy", parseProxyUrl, text),
      from: "--proxy",
      isNamedInClear: false,
    }));
    this.#env = env;
    environmentProxy(env);
    this.#pac = pac === "" ? undefined : about("--pac", (location) => new Pac(location), pac);
    this.#refused = new RefusedCredentials(now);
    this.#now = now;
  }

  /** In the order in which they are to be tried. Rejects with a `RouteFault` when a PAC script does not answer. */
  async ways(to: Target, signal: AbortSignal, reading: PacReading = {}): Promise<readonly ProxyRoute[]> {
    return this.#memory(to).order(await this.#named(to, signal, reading));
  }

  async #named(to: Target, signal: AbortSignal, reading: PacReading): Promise<readonly ProxyRoute[]> {
    if (this.#proxies.length > 0) return this.#proxies;
    const way = proxyFromEnvironment(this.#env, to);
    if (way !== undefined) return [way];
    return this.#pac === undefined ? [{ kind: "direct" }] : this.#pac.ways(to, signal, reading);
  }

  /** It led to the destination: it is the first from now on. */
  worked(to: Target, way: ProxyRoute): void {
    this.#memory(to).worked(way);
  }

  /** It did not, or what it led to was not the destination: for a while it is behind the others. */
  failed(to: Target, way: ProxyRoute): void {
    this.#memory(to).failed(way);
  }

  /**
   * A connection by the first way that opens one; which did and which did not is remembered. A way that was cut short for
   * the sake of others has a second turn behind them, and all the time that is left then or in the next attempt: a slow
   * proxy must not be lost for the sake of a dead one. Rejects with a `RouteFault`: the one that tells most, in the words of
   * all. An abort is a `timeout`.
   */
  async open(to: Target, options: OpenRouteOptions, signal: AbortSignal): Promise<OpenedRoute> {
    const { tls, onNote } = options;
    const turns = [...(await this.ways(to, signal, { ca: () => tls?.().ca, onNote }))];
    const memory = this.#memory(to);
    const failed = new Map<ProxyRoute, RouteFault>();
    for (const way of turns) {
      const limit = new AbortController();
      const isHurried = way !== turns.at(-1) && !memory.wasCutShort(way);
      const timer = isHurried ? setTimeout(() => limit.abort(), EARLIER_WAY_MS) : undefined;
      const either = AbortSignal.any([signal, limit.signal]);
      try {
        // Cut then, it would be shown the same once more: the verdict of a slow one is worth the time of the others.
        const onTrial = (): void => clearTimeout(timer);
        const socket = await this.#openBy(way, to, options, either, onTrial);
        this.worked(to, way);
        failed.delete(way);
        return { socket, way, failed: [...failed.values()] };
      } catch (error) {
        failed.set(way, toRouteFault(error, way, to, either));
        if (signal.aborted || !limit.signal.aborted) {
          this.failed(to, way);
        } else {
          memory.cutShort(way);
          turns.push(way);
        }
        if (signal.aborted) break;
      } finally {
        clearTimeout(timer);
      }
    }
    throw combineFaults([...failed.values()]);
  }

  /** `onTrial`: it is shown credentials that it has not taken before. */
  async #openBy(
    way: ProxyRoute,
    to: Target,
    options: OpenRouteOptions,
    signal: AbortSignal,
    onTrial: () => void,
  ): Promise<Socket> {
    if (way.kind === "direct") return dialTcp(to, formatTarget(to), signal);
    const { proxy, isNamedInClear } = way;
    const { credentials: given, tls, ...rest } = options;
    const file = isNamedInClear ? undefined : given;
    const showing = this.#refused.attempt({ proxy: formatProxy(proxy), server: formatTarget(to) }, signal, onTrial);
    const credentials = async (): Promise<ProxyCredentials | undefined> => {
      const found = proxy.credentials ?? (await file?.read(signal));
      if (found !== undefined) await showing.begin(found, proxy.credentials === undefined ? "file" : "url");
      return found;
    };
    try {
      const proxyTls = proxy.scheme === "https" ? tls?.() : undefined;
      const socket = await (proxy.scheme === "socks5" || proxy.scheme === "socks5h"
        ? openThroughSocks(proxy, to, { credentials, isNamedInClear, showing }, signal)
        : openThroughProxy(proxy, to, { ...rest, credentials, isNamedInClear, showing, tls: proxyTls }, signal));
      showing.end("accepted");
      return socket;
    } catch (error) {
      showing.end(error instanceof RouteFault ? error.fault : "timeout");
      throw error;
    }
  }

  #memory(to: Target): RouteHistory {
    const name = formatTarget(to);
    const memory = this.#memories.get(name) ?? new RouteHistory(this.#now);
    this.#memories.set(name, memory);
    return memory;
  }
}

function about<T>(option: string, parse: (text: string) => T, text: string): T {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${option} ${(error as Error).message}`);
  }
}
