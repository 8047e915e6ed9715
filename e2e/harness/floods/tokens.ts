import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../../shared/wire/handshake.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddress: string;
  /** Connections at once, each with another token; who is answered or cut comes again. */
  readonly connections: number;
  readonly audience: string;
}

const HOUR_S = 3_600;

function part(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

/** Agents of nobody: each request shows another token that looks right and is signed by nobody. */
await flooding<Args, { opened: number; answered: number }>(
  { opened: 0, answered: 0 },
  ({ port, servername, localAddress, connections, audience }, counts) => {
    let forgeries = 0;
    const forged = (): string => {
      const claims = { iss: "https://kubernetes.default.svc", sub: "system:serviceaccount:culvert:agent" };
      const exp = Math.floor(Date.now() / 1_000) + HOUR_S;
      const payload = { ...claims, aud: [audience], exp, jti: `flood ${forgeries++}` };
      return `${part({ alg: "ES256", kid: "k1" })}.${part(payload)}.${"c2ln".repeat(22)}`;
    };
    const request = (): string =>
      [
        `GET ${TUNNEL_PATH} HTTP/1.1`,
        ...[`Host: ${servername}`, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
        `Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}`,
        ...[`Sec-WebSocket-Protocol: ${SUBPROTOCOL}`, `Authorization: Bearer ${forged()}`, "", ""],
      ].join("\r\n");
    const open = (): void => {
      counts.opened++;
      const raw = connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});
      const socket = connectTls({ socket: raw, servername, rejectUnauthorized: false }).on("error", () => {});
      socket.once("secureConnect", () => socket.write(request()));
      socket.once("data", () => {
        counts.answered++;
        socket.destroy();
      });
      socket.on("close", () => setTimeout(open, 200 * Math.random()));
    };
    for (let count = 0; count < connections; count++) open();
  },
);
