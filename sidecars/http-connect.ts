import { type IncomingMessage, request } from "node:http";
import type { Duplex } from "node:stream";
import { refusalOf, serverAway } from "./refusal.ts";

interface ConnectOptions {
  /** The target, `host:port`. */
  readonly authority: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The server that is asked, for sentences. */
  readonly at: string;
  readonly signal: AbortSignal;
}

/**
 * Sends CONNECT in HTTP/1.1 (RFC 9110 §9.3.6) on an open connection, which is the tunnel when this resolves. Rejects
 * with a `Refusal`, and then the connection is destroyed.
 */
export function connectOverHttp1(connection: Duplex, options: ConnectOptions): Promise<Duplex> {
  const { authority, headers, at, signal } = options;
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      connection.destroy();
      reject(error);
    };
    const asked = request({
      method: "CONNECT",
      path: authority,
      headers: { host: authority, ...headers },
      createConnection: () => connection,
      signal,
    });
    asked.on("error", (error) => fail(signal.aborted ? signal.reason : serverAway(`${at}: ${error.message}`, error)));
    asked.on("connect", ({ statusCode = 0, statusMessage = "", headers: fields }: IncomingMessage, tunnel, head) => {
      tunnel.on("error", ignore);
      if (statusCode !== 200) fail(refusalOf(statusCode, String(fields["proxy-status"] ?? ""), statusMessage));
      else {
        if (head.length > 0) tunnel.unshift(head);
        resolve(tunnel);
      }
    });
    asked.end();
  });
}

function ignore(): void {}
