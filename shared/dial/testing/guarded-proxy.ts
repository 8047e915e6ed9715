import type { Socket } from "node:net";
import { type ProxyRequest, ScriptedProxy, USER } from "./scripted-proxy.ts";

export const OK = "HTTP/1.1 200 Connection established\r\n\r\n";
export const credentials = async () => USER;
export const BASIC = `Basic ${Buffer.from("Mufasa:Circle of Life").toString("base64")}`;

export interface Refusal {
  readonly offers: readonly string[];
  readonly fields?: string;
  readonly body?: string;
}

export function refuse({ offers, fields = "", body = "Content-Length: 4\r\n\r\npage" }: Refusal): string {
  const lines = offers.map((offer) => `Proxy-Authenticate: ${offer}\r\n`).join("");
  return `HTTP/1.1 407 Proxy Authentication Required\r\n${lines}${fields}${body}`;
}

/** A proxy that refuses until `accepts` returns true. */
export function guarded(
  refusal: Refusal | ((request: ProxyRequest) => Refusal),
  accepts: (authorization: string, request: ProxyRequest) => boolean = () => false,
  afterwards: (socket: Socket) => void = () => {},
): Promise<ScriptedProxy> {
  return ScriptedProxy.start({
    onRequest: (request, socket) => {
      const authorization = request.fields.get("proxy-authorization");
      if (authorization !== undefined && accepts(authorization, request)) {
        socket.write(`${OK}in`);
        return;
      }
      socket.write(refuse(typeof refusal === "function" ? refusal(request) : refusal), "latin1", () =>
        afterwards(socket),
      );
    },
  });
}

export function authorizations(proxy: ScriptedProxy): (string | undefined)[] {
  return proxy.requests.map(({ fields }) => fields.get("proxy-authorization"));
}
