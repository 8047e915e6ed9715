import { isIP, type Socket } from "node:net";
import { connect, type TLSSocket } from "node:tls";
import { trustIn } from "./authorities.ts";

/** Whom to trust, and who we are, PEM. Without `ca`, the CAs of this machine. */
export interface ClientTls {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** Begins TLS with `host`, a name or an address, over an open connection. The socket has an error listener. */
export function tlsOver(socket: Socket, host: string, { ca, cert, key }: ClientTls, protocol: string): TLSSocket {
  const name = isIP(host) === 0 ? { servername: host } : {};
  const secured = connect({ socket, host, ...name, ...trustIn(ca), cert, key, ALPNProtocols: [protocol] });
  return secured.on("error", () => {});
}
