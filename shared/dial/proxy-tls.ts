import type net from "node:net";
import tls from "node:tls";
import { sniOf } from "../address/sni.ts";
import { brokenOff } from "../http/broken-off.ts";
import { wellKnownAuthorities } from "../tls/authorities.ts";
import { identityWords, isUntrusted } from "../tls/certificate-names.ts";
import { RouteFault } from "./fault.ts";
import { formatProxy, type ProxyServer } from "./proxy-route.ts";

/** Of TLS to the proxy itself. */
export interface ProxyTls {
  /** PEM, beside the well-known authorities. */
  readonly ca?: readonly string[] | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** TLS to an `https://` proxy, on an open connection that has an error listener; an abort destroys that. */
export function secureProxy(raw: net.Socket, proxy: ProxyServer, { ca, cert, key }: ProxyTls): Promise<tls.TLSSocket> {
  const { host } = proxy;
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      raw.destroy();
      reject(tlsFault(proxy, error));
    };
    let socket: tls.TLSSocket;
    try {
      socket = tls.connect({
        socket: raw,
        host,
        ...sniOf(host),
        ...(ca === undefined ? {} : { ca: [...wellKnownAuthorities(), ...ca] }),
        ...(cert === undefined ? {} : { cert }),
        ...(key === undefined ? {} : { key }),
        // Said aloud: NODE_TLS_REJECT_UNAUTHORIZED=0 would change the default, and passwords go over this.
        rejectUnauthorized: true,
        ALPNProtocols: ["http/1.1"],
      });
    } catch (error) {
      fail(error as Error); // files that OpenSSL cannot read
      return;
    }
    const onClose = (): void => fail(new Error("it closed the connection in the handshake"));
    socket.on("error", ignore);
    socket.once("error", fail);
    socket.once("close", onClose);
    socket.once("secureConnect", () => {
      socket.off("error", fail);
      socket.off("close", onClose);
      resolve(socket);
    });
  });
}

/** TLS to the proxy has failed, in the handshake or, where TLS 1.3 tells so late, behind it. */
export function tlsFault(proxy: ProxyServer, error: NodeJS.ErrnoException): RouteFault {
  const at = formatProxy(proxy);
  return new RouteFault("proxy_tls", `TLS to the proxy ${at} failed: ${explain(error)}`, { at, cause: error });
}

/** Did TLS end this connection? */
export function isTlsError(error: NodeJS.ErrnoException | undefined): error is NodeJS.ErrnoException {
  return error?.code?.startsWith("ERR_SSL_") ?? false;
}

function explain(error: NodeJS.ErrnoException): string {
  const { code = "", message } = error;
  if (isUntrusted(error)) {
    return `its certificate comes from a CA that is not known here: give that CA with --proxy-ca (${code})`;
  }
  if (code === "CERT_HAS_EXPIRED" || code === "CERT_NOT_YET_VALID") {
    return `its certificate is not valid now: check this machine's clock, and the proxy's certificate (${message})`;
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `its certificate is for another name: call the proxy by a name that is in it (${identityWords(error)})`;
  }
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER" || code === "ERR_SSL_PACKET_LENGTH_TOO_LONG") {
    return "it does not speak TLS: is it an http:// proxy?";
  }
  if (/CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE|BAD_CERTIFICATE|UNKNOWN_CA|CERTIFICATE_UNKNOWN/.test(code)) {
    return `it refuses our certificate, or wants one: see --proxy-cert and --proxy-key (${code})`;
  }
  const broken = brokenOff(error);
  const what = broken === undefined ? message : `it ${broken} in the handshake`;
  return `check that it is an https:// proxy, and --proxy-ca, --proxy-cert and --proxy-key (${what})`;
}

function ignore(): void {}
