import type { Target } from "../address/target.ts";
import { bypassesProxy } from "./no-proxy.ts";
import type { ProxyRoute } from "./proxy-route.ts";
import { parseProxyUrl } from "./proxy-url.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Connections to servers are TLS: HTTP_PROXY is not theirs. ALL_PROXY is curl's word for the rest. */
const VARIABLES = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] as const;

/**
 * The proxy that the environment names, for whatever destination; `undefined`: none. An empty variable is none (Go).
 * Throws an Error that names the variable and does not show it; Go would connect directly, past the proxy.
 */
export function environmentProxy(env: Environment): ProxyRoute | undefined {
  const from = VARIABLES.find((name) => env[name]);
  if (from === undefined) return undefined;
  try {
    return { kind: "proxy", proxy: parseProxyUrl(env[from] ?? ""), from, isNamedInClear: false };
  } catch (error) {
    throw new Error(`${from} ${(error as Error).message}`);
  }
}

/** The same for one destination: `direct` where NO_PROXY keeps it from the proxy. */
export function proxyFromEnvironment(env: Environment, destination: Target): ProxyRoute | undefined {
  const proxy = environmentProxy(env);
  if (proxy === undefined) return undefined;
  return bypassesProxy(env["NO_PROXY"] || env["no_proxy"] || "", destination) ? { kind: "direct" } : proxy;
}
