import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TLSSocket } from "node:tls";
import { until } from "../../../shared/basics/testing/wait.ts";
import type { Hello } from "../../../shared/link/control.ts";
import { dialCarrier } from "../../../shared/link/dial.ts";
import { Link } from "../../../shared/link/link.ts";
import type { CertificateAndKey, LeafOptions } from "../../../shared/pki/certificates.ts";
import { encodeHead, receiveHead } from "../../../shared/wire/stream-head.ts";
import { Session } from "../../../shared/yamux/session.ts";
import type { ServerOptions } from "../../options/options.ts";
import { agentOf, CONNECT, callerOf, collect, type Line, pki, start, type TestServer } from "../../testing/server.ts";
import { PEER_PATH } from "../peer-link.ts";
import { MemoryHub } from "./memory-directory.ts";

/** The options of a certificate for a server; the one CA of the tests has agents and callers, too. */
export function peerLeaf(cn: string, more: Partial<LeafOptions> = {}): LeafOptions {
  return { cn, o: ["culvert-servers"], usage: "both", ...more };
}

/** The lines of a server's log with this message. */
export function linesOf(server: TestServer, message: string): Line[] {
  return server.lines.filter(({ msg }) => msg === message);
}

/** Several servers in one process, and their directory. */
export class Fleet implements AsyncDisposable {
  readonly hub = new MemoryHub();
  readonly #servers = new Map<string, TestServer>();

  async start(serverId: string, more: Partial<ServerOptions> = {}, by?: CertificateAndKey): Promise<TestServer> {
    const pair = by ?? (await pki.ca.issue(peerLeaf(serverId)));
    const [cert, key] = ["crt", "key"].map((end) => join(pki.folder, `${serverId}.${end}`)) as [string, string];
    await writeFile(cert, pair.cert);
    await writeFile(key, pair.key);
    const server = await start(
      {
        ...{ serverId, directory: ["nats://in-memory"], peerPort: 0, peerBindAddress: "127.0.0.1" },
        ...{ peerAddress: "127.0.0.1", peerCert: cert, peerKey: key, peerCaCert: join(pki.folder, "ca.pem") },
        // A busy machine takes its time for the first handshake between two servers.
        ...{ peerIdentities: ["O=culvert-servers"], agentAckTimeoutMs: 10_000, connectTimeoutMs: 20_000, ...more },
      },
      { openDirectory: (location) => this.hub.join(location) },
    );
    this.#servers.set(serverId, server);
    return server;
  }

  /** Two servers: "srv-2" has the agent "blue", and "srv-1" has none. */
  async pair(nearOptions: Partial<ServerOptions> = {}, farOptions: Partial<ServerOptions> = {}) {
    const near = await this.start("srv-1", nearOptions);
    const far = await this.start("srv-2", farOptions);
    const agent = await agentOf(far, { agentId: "blue" });
    await this.holders("srv-2");
    return { near, far, agent };
  }

  get(serverId: string): TestServer {
    return this.#servers.get(serverId) ?? assert.fail(`no server ${serverId}`);
  }

  /** The directory names exactly these servers for the cluster. */
  async holders(...serverIds: string[]): Promise<void> {
    await until(() => this.hub.holders("default").join() === serverIds.join());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#servers.values()].map((server) => server.close()));
  }
}

/** One CONNECT of a caller; resolves when the head of the answer has been read. */
export async function ask(server: TestServer, request = CONNECT) {
  return await askOn(await callerOf(server, pki.caller), request);
}

/** The same on a connection that is open. */
export async function askOn(socket: TLSSocket, request: string) {
  const reads = collect(socket);
  socket.write(request);
  await until(() => reads.join("").includes("\r\n\r\n") || socket.destroyed);
  return {
    socket,
    get text() {
      return reads.join("");
    },
    get status() {
      return reads.join("").split("\r\n", 1)[0] ?? "";
    },
  };
}

/** A peer that says what the test wants; rejects as `dialCarrier` does. */
export async function rawPeer(
  server: TestServer,
  by?: CertificateAndKey,
  more: Partial<Hello> = {},
): Promise<{ readonly session: Session; readonly link: Link }> {
  const port = server.addresses.peers?.port ?? 0;
  const { carrier, welcome, remote } = await dialCarrier({
    ...{ host: "localhost", port, address: { host: "127.0.0.1", port }, path: PEER_PATH },
    tls: { ca: pki.ca.cert, ...by, checkServerIdentity: () => undefined },
    hello: () => ({ type: "hello", version: 1, agentId: "raw", instance: "raw-1", software: "test", ...more }),
    ...{ keepaliveMs: 20_000, timeoutMs: 5_000 },
  });
  const link = new Link(welcome.link, remote, carrier, { graceMs: 0, replayBytes: 1024 * 1024 });
  const session = new Session("client", link, { onStream: (stream) => stream.reset(), onClosed: () => {} });
  return { session, link };
}

/** The server's answer to a stream with this head. */
export async function answerTo(session: Session, head: object): Promise<Readonly<Record<string, unknown>>> {
  const stream = session.open(encodeHead(head));
  stream.on("error", () => {});
  const json = await new Promise<Buffer>((resolve, reject) => receiveHead(stream, resolve, reject));
  stream.destroy();
  return JSON.parse(json.toString("utf8"));
}
