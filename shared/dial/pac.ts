import { bracketed, type Target } from "../address/target.ts";
import { printable } from "../outcomes.ts";
import { evaluatePac } from "./pac-sandbox.ts";
import { type PacReadOptions, type PacSource, pacFault, pacSource } from "./pac-source.ts";
import { type ProxyRoute, type ProxyServer, parseProxyUrl } from "./proxy-route.ts";

/** Time for a script, with the names that it looks up. */
const TIMEOUT_MS = 2_000;

/** `--pac`: a script that is asked for the proxy routes to each target (proxy auto-configuration). */
export class Pac {
  readonly #source: PacSource;

  /** Throws an Error whose message continues "--pac". */
  constructor(location: string) {
    this.#source = pacSource(location);
  }

  /** The routes that the script names for a target, in its order. Rejects with a `RouteFault`. */
  async routes(to: Target, signal: AbortSignal, options: PacReadOptions = {}): Promise<readonly ProxyRoute[]> {
    const { name, isUnverified } = this.#source;
    const script = await this.#source.read(signal, options);
    const question = { script, url: urlOf(to), host: to.host, timeoutMs: TIMEOUT_MS };
    const answer = await evaluatePac(question, signal).catch((error: Error) => {
      throw pacFault(name, error.message);
    });
    const routes = parsePacResult(answer, { from: `PAC ${name}`, isUnverified });
    if (routes === undefined) throw pacFault(name, `names no proxy of a known kind: "${printable(answer, 80)}"`);
    return routes;
  }
}

/** Scripts know http and https. Browsers, too, hide the path of an https URL from them. */
function urlOf({ host, port }: Target): string {
  return new URL(`https://${bracketed(host)}:${port}/`).href;
}

/** A script that names more routes is broken. */
const MAX_ROUTES = 32;

/** SOCKS alone means version 4 to some browsers; servers that still exist speak 5, and resolve names. */
const SCHEMES = new Map<string, ProxyServer["scheme"]>([
  ["PROXY", "http"],
  ["HTTP", "http"],
  ["HTTPS", "https"],
  ["SOCKS", "socks5h"],
  ["SOCKS5", "socks5h"],
]);

/** What the routes of one script have in common. */
export type PacOrigin = Pick<ProxyRoute & { readonly kind: "proxy" }, "from" | "isUnverified">;

/**
 * Parses the answer of FindProxyForURL: `PROXY a:3128; SOCKS5 b:1080; DIRECT`. As in browsers, unknown entries are left
 * out, and an empty answer means `DIRECT`. Gives `undefined` if no entry of a non-empty answer is known.
 */
export function parsePacResult(text: string, origin: PacOrigin): readonly ProxyRoute[] | undefined {
  const entries = text.split(";").flatMap((entry) => entry.trim() || []);
  if (entries.length === 0) return [{ kind: "direct" }];
  const routes = entries.slice(0, MAX_ROUTES).flatMap((entry) => parseEntry(entry, origin) ?? []);
  return routes.length === 0 ? undefined : routes;
}

function parseEntry(entry: string, origin: PacOrigin): ProxyRoute | undefined {
  const [, keyword = "", authority = ""] = /^(\S+)(?:\s+(\S+))?$/.exec(entry) ?? [];
  if (keyword.toUpperCase() === "DIRECT") return { kind: "direct" };
  const scheme = SCHEMES.get(keyword.toUpperCase());
  if (scheme === undefined) return undefined;
  try {
    return { kind: "proxy", proxy: parseProxyUrl(`${scheme}://${authority}`), ...origin };
  } catch {
    return undefined;
  }
}
