import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer as createHttpsServer } from "node:https";
import net, { type AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { type WebSocket, WebSocketServer } from "ws";
import { deferred } from "../../basics/promises.ts";
import { until } from "../../basics/testing/wait.ts";
import { TurnQueue } from "../../basics/timers.ts";
import { Authority, type CertificateAndKey } from "../../pki/certificates.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../wire/handshake.ts";
import type { TransportConsumer } from "../../yamux/transport.ts";
import { answerHello, openCarrier, orRefuse, receiveHello } from "../accept.ts";
import { type Carrier, WEBSOCKET_BOUNDS } from "../carrier.ts";
import type { Hello, OuterHello, ResumeAnswer, Welcome } from "../control.ts";
import { type DialOptions, dialCarrier } from "../dial.ts";
import { Link } from "../link.ts";
import { LinkKey } from "../proof.ts";

export const HELLO: Hello = { type: "hello", version: 1, agentId: "a1", instance: "i1", software: "test" };
export const KEEPALIVE_MS = 20_000;
const REPLAY_BYTES = 16 * 1024 * 1024;

/** The welcome of a server in tests. */
export function welcome(change: Partial<Welcome> = {}): Welcome {
  const base = { type: "welcome", version: 1, serverId: "s1", link: "s1-1", initialWindow: 65_536 } as const;
  return { ...base, key: "k".repeat(43), keepaliveMs: KEEPALIVE_MS, graceMs: 0, ...change };
}

let certificate: Promise<{ ca: string; leaf: CertificateAndKey }> | undefined;

/** One throwaway CA and certificate for `localhost` and 127.0.0.1 in a test process. */
export function testCertificate(): Promise<{ ca: string; leaf: CertificateAndKey }> {
  certificate ??= Authority.create("test").then(async (authority) => {
    const leaf = await authority.issue({ cn: "localhost", names: ["localhost", "127.0.0.1"], usage: "server" });
    return { ca: authority.cert, leaf };
  });
  return certificate;
}

/** The consumer of a transport in tests, which records its calls. */
export class Inbox implements TransportConsumer {
  readonly #over = deferred<Error | undefined>();
  readonly closed = this.#over.promise;
  readonly hash = createHash("sha256");
  readonly pieces: Buffer[] = [];
  bytes = 0;
  closedCount = 0;
  /** Calls after `onClosed`: there must be none. */
  late = 0;
  /** Called for each `onWritable`. */
  writable: () => void = () => {};
  readonly #keep: boolean;

  constructor(keep = true) {
    this.#keep = keep;
  }

  get text(): string {
    return Buffer.concat(this.pieces).toString("latin1");
  }

  onBytes(chunk: Buffer): void {
    if (this.closedCount > 0) this.late++;
    this.bytes += chunk.length;
    if (this.#keep) this.pieces.push(chunk);
    else this.hash.update(chunk);
  }

  onWritable(): void {
    if (this.closedCount > 0) this.late++;
    this.writable();
  }

  onClosed(reason: Error | undefined): void {
    this.closedCount++;
    this.#over.resolve(reason);
  }
}

/** Server-side sockets that are open now, and how to end the server with all of them. */
abstract class Listener implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly sockets = new Set<net.Socket>();
  abstract readonly server: net.Server;

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  protected async listen(): Promise<void> {
    this.server.on("connection", (socket: net.Socket) => {
      this.sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => this.sockets.delete(socket));
    });
    this.server.listen(0, this.host);
    await once(this.server, "listening");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    if (this.server.listening) await once(this.server, "close");
  }
}

export interface AcceptOptions {
  readonly helloTimeoutMs: number;
  readonly keepaliveMs: number;
  readonly turns: TurnQueue;
  /** Answers the hello; throws to refuse. */
  welcome(hello: Hello | OuterHello): Welcome | ResumeAnswer | undefined;
}

/** A carrier whose hello was not refused. */
export async function acceptCarrier(
  ws: WebSocket,
  socket: Duplex,
  { helloTimeoutMs, welcome, ...more }: AcceptOptions,
) {
  const carrier = openCarrier(ws, socket, more);
  const hello = await receiveHello(carrier, helloTimeoutMs);
  const answer = orRefuse(carrier, () => welcome(hello));
  if (answer !== undefined) answerHello(carrier, answer);
  return { carrier, hello, welcome: answer };
}

/** A real server's end: https, ws, `acceptLink`. */
export class LinkServer extends Listener {
  readonly server: net.Server;
  readonly results: PromiseSettledResult<{ link: Link; carrier: Carrier; hello: Hello }>[] = [];
  /** TLS sockets of the upgraded connections, in order. */
  readonly upgraded: tls.TLSSocket[] = [];
  /** Called before the upgrade; true: it has answered the request itself. */
  refuse: (socket: tls.TLSSocket) => boolean = () => false;
  /** Called between the upgrade and `acceptLink`. */
  beforeAccept: (ws: WebSocket, socket: tls.TLSSocket) => void = () => {};
  readonly #options: AcceptOptions;

  private constructor(leaf: CertificateAndKey, options: Partial<AcceptOptions>) {
    super();
    this.server = createHttpsServer(leaf);
    const key = LinkKey.random();
    this.#options = {
      helloTimeoutMs: 5_000,
      keepaliveMs: KEEPALIVE_MS,
      turns: new TurnQueue(),
      welcome: ({ resume }) =>
        resume === undefined
          ? welcome({ key: key.text })
          : { type: "resumed", version: 1, received: 0, proof: key.answer(resume, 0) },
      ...options,
    };
    const wss = new WebSocketServer({ noServer: true, perMessageDeflate: false, ...WEBSOCKET_BOUNDS });
    this.server.on("upgrade", (request, socket: tls.TLSSocket, head) => {
      if (this.refuse(socket)) return;
      wss.handleUpgrade(request, socket, head, (ws) => this.#accept(ws, socket));
    });
  }

  static async start(options: Partial<AcceptOptions> = {}): Promise<LinkServer> {
    const { leaf } = await testCertificate();
    const server = new LinkServer(leaf, options);
    await server.listen();
    return server;
  }

  #accept(ws: WebSocket, socket: tls.TLSSocket): void {
    this.upgraded.push(socket);
    this.beforeAccept(ws, socket);
    const index = this.upgraded.length - 1;
    acceptCarrier(ws, socket, this.#options).then(
      ({ carrier, hello, welcome: answer }) => {
        const { link: id = hello.resume?.link ?? "", graceMs = 0 } = answer?.type === "welcome" ? answer : {};
        const link = new Link(id, "test", carrier, { graceMs, replayBytes: REPLAY_BYTES });
        this.results[index] = { status: "fulfilled", value: { link, carrier, hello: hello as Hello } };
      },
      (reason) => {
        this.results[index] = { status: "rejected", reason };
      },
    );
  }

  /** The link of the connection with this number. */
  async link(index = 0): Promise<Link> {
    return (await this.#accepted(index)).link;
  }

  async carrier(index = 0): Promise<Carrier> {
    return (await this.#accepted(index)).carrier;
  }

  async #accepted(index: number): Promise<{ link: Link; carrier: Carrier }> {
    await until(() => this.results[index] !== undefined);
    const result = this.results[index];
    if (result?.status !== "fulfilled") throw result?.reason;
    return result.value;
  }

  /** The link that an agent of this name got. */
  async linkOf(agentId: string): Promise<Link> {
    let link: Link | undefined;
    await until(() => {
      for (const result of this.results) {
        if (result?.status === "fulfilled" && result.value.hello.agentId === agentId) link = result.value.link;
      }
      return link !== undefined;
    });
    return link as Link;
  }

  /** Why the connection with this number was not accepted. */
  async refusal(index = 0): Promise<Error> {
    await until(() => this.results[index] !== undefined);
    const result = this.results[index];
    if (result?.status !== "rejected") throw new Error("it was accepted");
    return result.reason;
  }
}

/** `upgrade` is the 101 answer, which the test writes. */
type Talk = (socket: tls.TLSSocket, upgrade: string, request: string) => void;

/** A server whose every byte the test writes after the upgrade. */
export class RawServer extends Listener {
  readonly server: net.Server;

  private constructor(leaf: CertificateAndKey, talk: Talk) {
    super();
    this.server = tls.createServer(leaf, (socket) => {
      socket.on("error", () => {});
      socket.once("data", (bytes: Buffer) => {
        const request = bytes.toString("latin1");
        talk(socket, switchingProtocols(request), request);
      });
    });
  }

  static async start(talk: Talk): Promise<RawServer> {
    const { leaf } = await testCertificate();
    const server = new RawServer(leaf, talk);
    await server.listen();
    return server;
  }
}

function switchingProtocols(request: string): string {
  const key = /sec-websocket-key: (\S+)/i.exec(request)?.[1] ?? "";
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return [
    "HTTP/1.1 101 Switching Protocols",
    "Upgrade: websocket",
    "Connection: Upgrade",
    `Sec-WebSocket-Accept: ${accept}`,
    `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`,
    "\r\n",
  ].join("\r\n");
}

/** A client whose every byte the test writes after the upgrade; resolves with its paused socket. */
export async function rawClient(port: number, behindRequest: Buffer = Buffer.alloc(0)): Promise<tls.TLSSocket> {
  const { ca } = await testCertificate();
  const socket = tls.connect({ host: "127.0.0.1", port, ca, servername: "localhost" });
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  const request = [
    `GET ${TUNNEL_PATH} HTTP/1.1`,
    "Host: localhost",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`,
    "\r\n",
  ].join("\r\n");
  socket.write(Buffer.concat([Buffer.from(request), behindRequest]));
  const [answer] = await once(socket, "data");
  socket.pause();
  const end = answer.indexOf("\r\n\r\n") + 4;
  if (end < answer.length) socket.unshift(answer.subarray(end));
  return socket;
}

/** A TCP relay that can fall silent: it reads nothing more and closes nothing. */
export class Relay extends Listener {
  readonly server: net.Server;
  #silent = false;

  private constructor(port: number) {
    super();
    this.server = net.createServer((near) => {
      const far = net.connect(port, this.host);
      far.on("error", () => near.destroy());
      near.on("close", () => far.destroy());
      near.pipe(far);
      far.pipe(near);
      this.sockets.add(far);
      far.on("close", () => this.sockets.delete(far));
      if (this.#silent) this.silence();
    });
  }

  static async start(port: number): Promise<Relay> {
    const relay = new Relay(port);
    await relay.listen();
    return relay;
  }

  silence(): void {
    this.#silent = true;
    for (const socket of this.sockets) {
      socket.unpipe();
      socket.pause();
    }
  }
}

/** The options of `dial`, with the hello as a value. */
type DialChange = Partial<Omit<DialOptions, "hello">> & { readonly hello?: Hello };

/** Dials with the test's CA. */
export async function dial(
  port: number,
  { hello = HELLO, ...change }: DialChange = {},
): Promise<{ link: Link; carrier: Carrier; welcome: Welcome }> {
  const { ca } = await testCertificate();
  const { carrier, welcome, remote } = await dialCarrier({
    host: "localhost",
    port,
    address: { host: "127.0.0.1", port },
    path: TUNNEL_PATH,
    tls: { ca },
    hello: () => hello,
    keepaliveMs: KEEPALIVE_MS,
    timeoutMs: 5_000,
    ...change,
  });
  const { link: id, graceMs } = welcome;
  return { link: new Link(id, remote, carrier, { graceMs, replayBytes: REPLAY_BYTES }), carrier, welcome };
}

/** Returns the error of a dial. */
export async function failure(port: number, change: DialChange = {}): Promise<Error> {
  return dial(port, change).then(
    () => Promise.reject(new Error("it was accepted")),
    (error) => error,
  );
}

/** Both ends of a link, joined over TLS on loopback, each with a consumer. */
export async function linkPair(
  server: LinkServer,
  port = server.port,
  change: DialChange = {},
): Promise<{ near: Link; nearInbox: Inbox; far: Link; farInbox: Inbox }> {
  const index = server.upgraded.length;
  const { link: near } = await dial(port, change);
  const far = await server.link(index);
  const nearInbox = new Inbox();
  const farInbox = new Inbox();
  near.start(nearInbox);
  far.start(farInbox);
  return { near, nearInbox, far, farInbox };
}
