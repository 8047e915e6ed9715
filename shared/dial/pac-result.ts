import type { ProxyRoute, ProxyServer } from "./proxy-route.ts";
import { parseProxyUrl } from "./proxy-url.ts";

/** The script, as the ways that it names have it. */
export type PacNaming = Pick<ProxyRoute & { readonly kind: "proxy" }, "from" | "isNamedInClear">;

/** A script that names more has gone wrong. */
const MAX_WAYS = 32;

/**
 * What FindProxyForURL answered, as ways in order: `PROXY a:3128; SOCKS5 b:1080; DIRECT`. As in browsers, what cannot be
 * understood is left out, and nothing at all is `DIRECT`. `undefined`: it says something, and none of it is a way.
 */
export function parsePacResult(text: string, script: PacNaming): readonly ProxyRoute[] | undefined {
  const entries = text.split(";").flatMap((entry) => entry.trim() || []);
  if (entries.length === 0) return [{ kind: "direct" }];
  const ways = entries.slice(0, MAX_WAYS).flatMap((entry) => parseEntry(entry, script) ?? []);
  return ways.length === 0 ? undefined : ways;
}

/** SOCKS alone is version 4 to some browsers; servers that are still there speak 5, and take names. */
const SCHEMES = new Map<string, ProxyServer["scheme"]>([
  ["PROXY", "http"],
  ["HTTP", "http"],
  ["HTTPS", "https"],
  ["SOCKS", "socks5h"],
  ["SOCKS5", "socks5h"],
]);

function parseEntry(entry: string, script: PacNaming): ProxyRoute | undefined {
  const [, word = "", place = ""] = /^(\S+)(?:\s+(\S+))?$/.exec(entry) ?? [];
  if (word.toUpperCase() === "DIRECT") return { kind: "direct" };
  const scheme = SCHEMES.get(word.toUpperCase());
  if (scheme === undefined) return undefined;
  try {
    return { kind: "proxy", proxy: parseProxyUrl(`${scheme}://${place}`), ...script };
  } catch {
    return undefined;
  }
}
