import type net from "node:net";
import tls from "node:tls";
import { sniOf } from "../address/server-name.ts";
import { peerAction } from "../http/connection.ts";
import { wellKnownAuthorities } from "../tls/authorities.ts";
import { identityWords, isUntrusted } from "../tls/server-certificate.ts";
import { RouteFault } from "./fault.ts";
import { formatProxy, type ProxyServer } from "./proxy-route.ts";

/** Settings for TLS to the proxy itself. */
export interface ProxyTls {
  /** PEM, in addition to the well-known CAs. */
  readonly ca?: readonly string[] | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/**
 * Starts TLS to an `https://` proxy on an open connection, which has an error listener. Destroying that connection
 * aborts the handshake. Rejects with a `RouteFault`.
 */
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
        // NODE_TLS_REJECT_UNAUTHORIZED=0 must not apply: passwords are sent on this connection.
        rejectUnauthorized: true,
        ALPNProtocols: ["http/1.1"],
      });
    } catch (error) {
      fail(error as Error); // OpenSSL cannot read the files
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

/** TLS to the proxy has failed in the handshake or, in TLS 1.3 (RFC 8446 §4.4.2.4), after it. */
export function tlsFault(proxy: ProxyServer, error: NodeJS.ErrnoException): RouteFault {
  const at = formatProxy(proxy);
  return new RouteFault("proxy_tls", `TLS to the proxy ${at} failed: ${explain(error)}`, { at, cause: error });
}

/** Is this an error of TLS, and not of the network below? */
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
  const action = peerAction(error);
  const what = action === undefined ? message : `it ${action} in the handshake`;
  return `check that it is an https:// proxy, and --proxy-ca, --proxy-cert and --proxy-key (${what})`;
}

function ignore(): void {}
