import { bracketed } from "../address/target.ts";

/** A user and what proves it. Never logged, and never shown to another proxy than the one it belongs to. */
export interface ProxyCredentials {
  readonly user: string;
  readonly password: string;
}

/** What neither user nor password may hold (RFC 7617 §2). */
export const CONTROL_CHARACTER = /\p{Cc}/u;

/** Who follows what one attempt shows of them to a proxy, and what the proxy says to that. */
export interface LoginObserver {
  /** They go out now. */
  onShown(): void;
  /** The proxy has taken them; not certain: it has answered without asking for a login. */
  onTaken(isCertain: boolean): void;
  /** May they go out again, where the proxy gave no word on them? */
  mayRepeat(): boolean;
}

/** A proxy that opens TCP connections for others: by CONNECT (RFC 9110 §9.3.6), or SOCKS 5 (RFC 1928). */
export interface ProxyServer {
  /** `https`: TLS to the proxy itself. `socks5h`: the proxy resolves the name; `socks5`: we do. */
  readonly scheme: "http" | "https" | "socks5" | "socks5h";
  /** No brackets. */
  readonly host: string;
  readonly port: number;
  /** Those of its URL. */
  readonly credentials: ProxyCredentials | undefined;
}

/** How a connection leaves this network. */
export type ProxyRoute =
  | { readonly kind: "direct" }
  | {
      readonly kind: "proxy";
      readonly proxy: ProxyServer;
      /** Who names it, for the log: `--proxy`, `HTTPS_PROXY`, a PAC script. */
      readonly from: string;
      /**
       * A PAC script that was fetched without TLS names it: anybody on the path to the script's server may have chosen it,
       * so it is sent nothing that proves who we are.
       */
      readonly isNamedInClear: boolean;
    };

/** `http://proxy.corp:3128`, without credentials: how logs, metrics and the doctor call a proxy. */
export function formatProxy({ scheme, host, port }: ProxyServer): string {
  return `${scheme}://${bracketed(host)}:${port}`;
}

/** For logs: `direct`, or the proxy and who named it. */
export function formatRoute(way: ProxyRoute): string {
  return way.kind === "direct" ? "direct" : `${formatProxy(way.proxy)} (${way.from})`;
}
