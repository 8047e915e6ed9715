import { STATUS_CODES } from "node:http";
import { HANDSHAKE_RECORD } from "../listen/client-hello.ts";

/** The whole answer, header and body, to a peer that does not get as far as a route. */
function refusal(status: number, sentence: string): string {
  const body = `${sentence}\n`;
  const header = `Content-Type: text/plain\r\nContent-Length: ${body.length}\r\nConnection: close`;
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${header}\r\n\r\n${body}`;
}

export const NO_HTTP = refusal(
  400,
  "this is not an HTTP/1.1 request: this port speaks plain HTTP, for example GET /readyz",
);
export const CONNECT_TO_HEALTH = refusal(
  405,
  "this is the health port, which takes no CONNECT: callers come to the server's --server-port",
);
export const CONNECT_TO_ADMIN = refusal(
  405,
  "this is the admin port (/status, /metrics), which takes no CONNECT: callers come to the server's --server-port",
);
export const TOO_SLOW = refusal(408, "the request did not arrive in time");
const TLS = refusal(400, "this is TLS, and this port speaks plain HTTP: use http:// and not https://");
const LARGE = refusal(431, "the request header is too large for this port");

/** The answer to bytes that Node's HTTP parser has refused; `undefined`: the peer has gone. */
export function refusalOf(error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer }): string | undefined {
  const { code = "", rawPacket } = error;
  if (code === "HPE_HEADER_OVERFLOW") return LARGE;
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  return rawPacket?.[0] === HANDSHAKE_RECORD ? TLS : NO_HTTP;
}
