import { once } from "node:events";
import { readdirSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { connect as secure } from "node:tls";
import { formatTarget, type Target } from "../shared/address/target.ts";
import { bypassesProxy, formatProxy, type ProxyServer } from "../shared/dial/proxy-route.ts";
import { readBoundedSync } from "../shared/documents/read-bounded.ts";
import { trustIn, wellKnownAuthorities } from "../shared/tls/authorities.ts";
import type { Dialer } from "./dialer.ts";
import { connectOverHttp1 } from "./http-connect.ts";
import { parseHttpProxy } from "./options.ts";
import { Refusal } from "./refusal.ts";

/** Go reads CAs from here, and pods of HyperShift mount theirs here. */
const CA_FOLDER = "/etc/pki/tls/certs";

export interface HostedProxyOptions {
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
  /** A file of CAs for `https://` proxies, or "". */
  readonly proxyCa: string;
}

/** The proxies of the hosted cluster's own network, which are reached through the tunnel. */
export class HostedProxies {
  readonly #noProxy: string;
  readonly #ofHttp: ProxyServer | undefined;
  readonly #ofHttps: ProxyServer | undefined;
  readonly #proxyCa: string;

  constructor({ httpProxy, httpsProxy, noProxy, proxyCa }: HostedProxyOptions) {
    this.#noProxy = noProxy;
    this.#ofHttp = httpProxy === "" ? undefined : parseHttpProxy(httpProxy);
    this.#ofHttps = httpsProxy === "" ? undefined : parseHttpProxy(httpsProxy);
    this.#proxyCa = proxyCa;
  }

  /** The proxy for a request of this scheme; `undefined`: there is none, or the target is excepted. */
  find(scheme: "http" | "https", target: Target): ProxyServer | undefined {
    const proxy = scheme === "http" ? this.#ofHttp : this.#ofHttps;
    return proxy === undefined || bypassesProxy(this.#noProxy, target) ? undefined : proxy;
  }

  /** A tunnel to the target through the proxy. Rejects with a `Refusal`. */
  async tunnel(proxy: ProxyServer, target: Target, dialer: Dialer, signal: AbortSignal): Promise<Duplex> {
    const connection = await this.connect(proxy, dialer, signal);
    const headers = authorizationFor(proxy);
    const at = `the proxy ${formatProxy(proxy)}`;
    return connectOverHttp1(connection, { authority: formatTarget(target), headers, at, signal });
  }

  /** A connection to the proxy itself, with TLS where it has that. */
  async connect(proxy: ProxyServer, dialer: Dialer, signal: AbortSignal): Promise<Duplex> {
    const { scheme, host, port } = proxy;
    const stream = await dialer.dial({ host, port }, signal);
    if (scheme === "http") return stream;
    const name = isIP(host) === 0 ? { servername: host } : {};
    const trust = trustIn([...wellKnownAuthorities(), ...authoritiesOfFiles(this.#proxyCa)]);
    const socket = secure({ socket: stream, host, ...name, ...trust, ALPNProtocols: ["http/1.1"] });
    socket.on("error", ignore);
    try {
      await once(socket, "secureConnect", { signal });
      return socket;
    } catch (error) {
      socket.destroy();
      const { message } = error as Error;
      throw new Refusal(502, "tls_certificate_error", `TLS to the proxy ${formatProxy(proxy)} failed: ${message}`);
    }
  }
}

/** `Proxy-Authorization` (RFC 7617), if the proxy's URL has credentials. */
export function authorizationFor({ credentials }: ProxyServer): Record<string, string> {
  if (credentials === undefined) return {};
  const { user, password } = credentials;
  return { "proxy-authorization": `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

function authoritiesOfFiles(proxyCa: string): string[] {
  const paths = proxyCa === "" ? [] : [proxyCa];
  return [...paths, ...filesOf(CA_FOLDER)].map((path) => readBoundedSync(path).toString("utf8"));
}

function filesOf(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /\.(?:crt|pem)$/.test(name))
      .map((name) => join(folder, name));
  } catch {
    return []; // there is none
  }
}

function ignore(): void {}
