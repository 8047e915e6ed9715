import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import tls from "node:tls";
import { certificateOf } from "../../pki/testing/certificates.ts";
import { issuingAuthority } from "../../pki/testing/chains.ts";
import type { LoadKerberos } from "../auth/kerberos.ts";
import { openThroughProxy, type ProxyOptions } from "../http-proxy.ts";
import type { ProxyServer, RouteFault } from "../proxy-route.ts";

/** A CONNECT request that a scripted proxy has received. */
export interface ProxyRequest {
  readonly line: string;
  readonly fields: ReadonlyMap<string, string>;
  /** The number of its connection, and of the request on it; both from 0. */
  readonly connection: number;
  readonly index: number;
}

export interface ProxyScript {
  readonly onConnection?: (socket: net.Socket, connection: number) => void;
  readonly onRequest?: (request: ProxyRequest, socket: net.Socket) => void;
  readonly tls?: tls.TlsOptions;
}

/** A proxy that answers as its test says, and records the requests. */
export class ScriptedProxy implements AsyncDisposable {
  readonly requests: ProxyRequest[] = [];
  readonly sockets = new Set<net.Socket>();
  readonly #server: net.Server;
  readonly #script: ProxyScript;
  #connections = 0;

  private constructor(script: ProxyScript) {
    this.#script = script;
    this.#server =
      script.tls === undefined
        ? net.createServer(this.#onConnection)
        : tls.createServer(script.tls, this.#onConnection);
  }

  static async start(script: ProxyScript): Promise<ScriptedProxy> {
    const proxy = new ScriptedProxy(script);
    await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
    return proxy;
  }

  get connections(): number {
    return this.#connections;
  }

  get url(): ProxyServer {
    const { port } = this.#server.address() as AddressInfo;
    const scheme = this.#script.tls === undefined ? "http" : "https";
    return { scheme, host: "127.0.0.1", port, credentials: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }

  readonly #onConnection = (socket: net.Socket): void => {
    const connection = this.#connections++;
    this.sockets.add(socket);
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("error", () => {});
    this.#script.onConnection?.(socket, connection);
    let text = "";
    let index = 0;
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      const end = text.indexOf("\r\n\r\n");
      if (end < 0 || !text.startsWith("CONNECT ")) return;
      const [line = "", ...fields] = text.slice(0, end).split("\r\n");
      text = text.slice(end + 4);
      const request = { line, fields: new Map(fields.map(readField)), connection, index: index++ };
      this.requests.push(request);
      this.#script.onRequest?.(request, socket);
    });
  };
}

function readField(field: string): [string, string] {
  const colon = field.indexOf(":");
  return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
}

export const TO = { host: "agents.example", port: 443 };
export const USER = { user: "Mufasa", password: "Circle of Life" };

/** A connection through a proxy, without credentials by default. */
export function open(
  proxy: ScriptedProxy | ProxyServer,
  options: Partial<ProxyOptions> = {},
  signal: AbortSignal = AbortSignal.timeout(20_000),
  loadKerberos?: LoadKerberos,
): Promise<net.Socket> {
  const server = proxy instanceof ScriptedProxy ? proxy.url : proxy;
  return openThroughProxy(server, TO, { credentials: async () => undefined, ...options }, signal, loadKerberos);
}

/** Sets NODE_TLS_REJECT_UNAUTHORIZED=0 until the test is over, as operators do for other programs. */
export function withoutVerification(t: TestContext): void {
  const before = process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
  process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
  t.after(() => {
    if (before === undefined) delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"];
    else process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = before;
  });
}

/** The fault of a route that must not lead to its target. */
export async function faultOf(opening: Promise<net.Socket>): Promise<RouteFault> {
  try {
    (await opening).destroy();
  } catch (error) {
    return error as RouteFault;
  }
  throw new Error("the route led to its target");
}

/** The next bytes of the socket as text. */
export async function read(socket: net.Socket, bytes: number): Promise<string> {
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString("latin1");
  });
  socket.resume();
  while (text.length < bytes) await once(socket, "data", { signal: AbortSignal.timeout(10_000) });
  return text;
}

let certificates: Promise<{ ca: string; server: tls.TlsOptions; client: { cert: string; key: string } }> | undefined;

/** One throwaway issuing CA, whose root only the proxy has, with a certificate for 127.0.0.1 and one for a client. */
export function testCertificates(): NonNullable<typeof certificates> {
  certificates ??= certificateOf({ cn: "root" }).then(async (root) => {
    const authority = await issuingAuthority("test", root);
    const server = await authority.issue({ cn: "proxy", names: ["127.0.0.1"], usage: "server" });
    const client = await authority.issue({ cn: "agent", usage: "client" });
    return { ca: authority.cert, server: { ...server, ca: root.cert + authority.cert }, client };
  });
  return certificates;
}
