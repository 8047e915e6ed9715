import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { WebSocket } from "ws";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { type AgentsWorld, agentCertificate } from "./scripted-agent.ts";
import { within } from "./wait.ts";

/** A hello that a server accepts. */
export function helloText(change: Readonly<Record<string, unknown>> = {}): string {
  const words = { type: "hello", version: 1, agentId: "raw", instance: randomUUID(), software: "raw" };
  return JSON.stringify({ ...words, ...change });
}

/** How a WebSocket came to its end. */
export interface Closing {
  readonly code: number;
  readonly reason: string;
}

/** A peer on the agents' port that has done the upgrade, and says from then on what it likes. */
export class RawAgent implements AsyncDisposable {
  readonly ws: WebSocket;
  /** Below the WebSocket, for what is no frame. */
  readonly socket: Socket;
  /** How the server's log calls this peer. */
  readonly remote: string;
  readonly closed: Promise<Closing>;
  /** Text messages as they came. */
  readonly texts: string[] = [];
  /** Payload as it came. */
  readonly payload: Buffer[] = [];

  constructor(ws: WebSocket, socket: Socket) {
    this.ws = ws;
    this.socket = socket;
    this.remote = `127.0.0.1:${socket.localPort}`;
    socket.on("error", () => {}); // the server cuts whom it must
    ws.on("error", () => {});
    ws.on("message", (data: Buffer, isBinary) => {
      if (isBinary) this.payload.push(data);
      else this.texts.push(data.toString("utf8"));
    });
    this.closed = new Promise((resolve) => {
      ws.on("close", (code, reason) => resolve({ code, reason: reason.toString("utf8") }));
    });
  }

  /** Hello, and the server's welcome. */
  async greet(change: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const welcomed = once(this.ws, "message");
    this.ws.send(helloText(change));
    await within(welcomed, 5_000, "the welcome");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.ws.terminate();
  }
}

/** Does TLS and the upgrade with an agent's certificate, which need not be that of the world's own agents. */
export async function rawAgent(
  world: AgentsWorld,
  certificate = agentCertificate(world),
  subprotocols = [SUBPROTOCOL],
): Promise<RawAgent> {
  const socket = await dialAgentsPort(world, certificate);
  const ws = new WebSocket(`wss://127.0.0.1${TUNNEL_PATH}`, subprotocols, {
    createConnection: () => socket,
    perMessageDeflate: false,
  });
  const raw = new RawAgent(ws, socket);
  await within(once(ws, "open"), 5_000, "the upgrade");
  return raw;
}

/** TLS alone, with or without a certificate. */
export async function dialAgentsPort(world: AgentsWorld, certificate?: CertificateAndKey): Promise<TLSSocket> {
  const port = world.server.addresses.agents?.port ?? 0;
  const { cert: ca } = world.pki.clusterAuthority;
  const socket = connectTls({ host: "127.0.0.1", port, ca, ...certificate });
  await once(socket, "secureConnect");
  return socket;
}

interface PlainAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** Asks for the upgrade and expects a plain HTTP answer in its place. */
export async function refusedUpgrade(
  world: AgentsWorld,
  certificate: CertificateAndKey | undefined,
  { path = TUNNEL_PATH, subprotocols = [SUBPROTOCOL] }: { path?: string; subprotocols?: string[] } = {},
): Promise<PlainAnswer> {
  const socket = await dialAgentsPort(world, certificate);
  const ws = new WebSocket(`wss://127.0.0.1${path}`, subprotocols, { createConnection: () => socket });
  ws.on("error", () => {});
  const answer = new Promise<PlainAnswer>((resolve, reject) => {
    ws.on("open", () => reject(new Error("the upgrade was accepted")));
    ws.on("close", () => reject(new Error("the connection was closed without an answer")));
    ws.on("unexpected-response", (_request, response) => {
      const body: Buffer[] = [];
      response.on("data", (chunk: Buffer) => body.push(chunk));
      response.on("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(body).toString("utf8"),
        }),
      );
    });
  });
  try {
    return await within(answer, 5_000, "the refusal");
  } finally {
    ws.terminate();
    socket.destroy();
  }
}
