import type { Duplex } from "node:stream";
import type { Target } from "../shared/address/target.ts";
import { dialTcp } from "../shared/dial/dial-tcp.ts";
import { RouteFault } from "../shared/dial/proxy-route.ts";
import { openFirst } from "./address-turns.ts";
import { Refusal } from "./refusal.ts";
import { Resolver, type ResolverOptions } from "./resolver.ts";
import type { Upstream } from "./upstream.ts";

export interface DialerOptions extends ResolverOptions {
  readonly connectDirectlyToCloudApis: boolean;
  readonly directSuffixes: readonly string[];
  readonly directFallback: boolean;
}

/** How long targets are dialled directly after the tunnel was down, ms. Then it is tried again. */
const TUNNEL_DOWN_MS = 5_000;

/**
 * Opens connections to targets.
 *
 * ```
 *  a suffix of --direct-suffixes ─▶ directly, or through the proxy of the environment
 *  otherwise ─▶ resolve ─▶ through a server, each address
 *                  └────────────┴── the tunnel is down, --direct-fallback ─▶ directly
 * ```
 */
export class Dialer {
  readonly #options: DialerOptions;
  readonly #upstream: Upstream;
  readonly #resolver: Resolver;
  #tunnelDownUntil = 0;

  constructor(options: DialerOptions, upstream: Upstream) {
    this.#options = options;
    this.#upstream = upstream;
    this.#resolver = new Resolver(options, (server, signal) => upstream.open(server, signal));
  }

  /** Rejects with a `Refusal`, or with the reason of `signal`. */
  async dial(target: Target, signal: AbortSignal): Promise<Duplex> {
    if (this.#isDirect(target.host)) return dialByEnvironment(target, signal);
    const { directFallback } = this.#options;
    if (directFallback && performance.now() < this.#tunnelDownUntil) return dialDirectly(target, signal);
    try {
      return await this.#dialThrough(target, signal);
    } catch (error) {
      if (!directFallback || !isTunnelDown(error) || signal.aborted) throw error;
      this.#tunnelDownUntil = performance.now() + TUNNEL_DOWN_MS;
      return dialDirectly(target, signal);
    }
  }

  async #dialThrough({ host, port }: Target, signal: AbortSignal): Promise<Duplex> {
    const addresses = await this.#resolver.find(host, signal);
    const open = (address: string, over: AbortSignal) => this.#upstream.open({ host: address, port }, over);
    return openFirst(addresses ?? [host], open, signal);
  }

  #isDirect(host: string): boolean {
    const { connectDirectlyToCloudApis, directSuffixes } = this.#options;
    if (!connectDirectlyToCloudApis) return false;
    const name = host.toLowerCase().replace(/\.$/, "");
    return directSuffixes.some((suffix) => name.endsWith(suffix));
  }
}

/** No server is there, or none has an agent. A name that does not resolve, or a target that refuses, says nothing. */
function isTunnelDown(error: unknown): boolean {
  return error instanceof Refusal && error.isOfServer && error.kind === "destination_unavailable";
}

async function dialDirectly(target: Target, signal: AbortSignal): Promise<Duplex> {
  try {
    return await dialTcp(target, `${target.host} (dialled directly)`, signal);
  } catch (error) {
    throw refusalOfRoute(error);
  }
}

/** Through HTTPS_PROXY and NO_PROXY of the management cluster, if they are set. */
async function dialByEnvironment(target: Target, signal: AbortSignal): Promise<Duplex> {
  const { ProxyRoutes } = await import("../shared/dial/proxy-routes.ts");
  try {
    const routes = new ProxyRoutes({ proxies: [], pac: "", env: process.env });
    return (await routes.open(target, { tls: () => ({}) }, signal)).socket;
  } catch (error) {
    throw refusalOfRoute(error);
  }
}

function refusalOfRoute(error: unknown): unknown {
  if (!(error instanceof RouteFault)) return error;
  return new Refusal(502, KINDS.get(error.fault) ?? "destination_ip_unroutable", error.message, { cause: error });
}

const KINDS = new Map<string, string>([
  ["dns", "dns_error"],
  ["refused", "connection_refused"],
  ["timeout", "connection_timeout"],
]);
