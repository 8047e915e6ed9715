import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { type AddressInfo, createServer, connect as dialPlain, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { after, before } from "node:test";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { defaultsOf } from "../../shared/config/options.ts";
import type { Hello } from "../../shared/link/control.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type ServerOptions, serverOptions } from "../options/options.ts";
import { type Server, type ServerDeps, startServer } from "../server.ts";
import { PlayedAgent } from "./played-agent.ts";

/** As kube-apiserver asks. */
export const CONNECT = "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
export const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";

/** Certificates of the test file that imports this: made before its tests, removed behind them. */
export const pki = {} as {
  folder: string;
  ca: Authority;
  other: Authority;
  server: CertificateAndKey;
  caller: CertificateAndKey;
  agent: CertificateAndKey;
};

before(async () => {
  pki.folder = await mkdtemp(join(tmpdir(), "culvert-server-"));
  pki.ca = await Authority.create("ca");
  pki.other = await Authority.create("other");
  pki.server = await pki.ca.issue({ cn: "server", names: ["localhost", "127.0.0.1"], usage: "server" });
  pki.caller = await pki.ca.issue({ cn: "kube-apiserver", o: ["system:masters"], usage: "client" });
  pki.agent = await pki.ca.issue({ cn: "konnectivity-agent", usage: "client" });
  await writeFile(join(pki.folder, "ca.pem"), pki.ca.cert);
  await writeFile(join(pki.folder, "cert.pem"), pki.server.cert);
  await writeFile(join(pki.folder, "key.pem"), pki.server.key);
});

after(() => rm(pki.folder, { recursive: true, force: true }));

/** One line of a server's log. */
export type Line = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

/** A server on free ports, with its log. */
export async function start(
  more: Partial<ServerOptions> = {},
  deps: Pick<ServerDeps, "openDirectory" | "owners"> = {},
): Promise<Server & { readonly lines: readonly Line[] }> {
  const [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map((name) => join(pki.folder, name)) as [
    string,
    string,
    string,
  ];
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const options: ServerOptions = {
    ...defaultsOf(serverOptions),
    ...{ serverId: "srv-1", serverPort: 0, agentPort: 0, healthPort: 0, adminPort: 0 },
    ...{ serverBindAddress: "127.0.0.1", agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" },
    ...{ serverCert: cert, serverKey: key, serverCaCert: ca, clusterCert: cert, clusterKey: key, clusterCaCert: ca },
    agentWaitMs: 20,
    linkGraceMs: 0,
    drainTimeoutMs: 2_000,
    ...more,
  };
  const log = createLogger({ level: "debug", format: "json", name: "server", destination });
  return Object.assign(await startServer(options, { log, listenEphemeral: true, ...deps }), { lines });
}

/** A server of `start`, with the lines of its log. */
export type TestServer = Awaited<ReturnType<typeof start>>;

export type TestAgent = PlayedAgent & {
  /** The agent's reaction to a stream that it has taken; by default the target is there, and echoes. */
  answer: (stream: Stream) => Promise<void>;
};

export const HELLO: Hello = { type: "hello", version: 1, agentId: "a", instance: "1", software: "test" };

/** How an agent dials that says this hello. */
export function dialOptions(
  server: Server,
  hello: Hello,
  { cert, key }: CertificateAndKey = pki.agent,
  port = server.addresses.agents?.port ?? 0,
) {
  return {
    ...{ host: "localhost", port, address: { host: "127.0.0.1", port }, path: "/culvert/v1/tunnel" },
    tls: { ca: pki.ca.cert, cert, key },
    hello: () => hello,
    link: hello.resume?.link,
    ...{ keepaliveMs: 20_000, timeoutMs: 5_000 },
  };
}

/** An agent whose targets echo. */
export async function agentOf(
  server: Server,
  { by, port, ...words }: Partial<Hello> & { by?: CertificateAndKey; port?: number } = {},
): Promise<TestAgent> {
  const dialled = await dialCarrier(dialOptions(server, { ...HELLO, ...words }, by, port));
  const take = (stream: Stream) => {
    stream.accept();
    void agent.answer(stream);
  };
  const agent: TestAgent = Object.assign(new PlayedAgent(dialled, take), { answer: echo });
  return agent;
}

async function echo(stream: Stream): Promise<void> {
  await readOpen(stream, 1_000);
  stream.write(encodeAnswer({ ok: true }));
  stream.pipe(stream);
}

/**
 * A path to the agents' port that can freeze: nothing is lost, and nothing comes through, as from a stopped process.
 */
export async function freezablePath(server: Server) {
  const sockets: Socket[] = [];
  const relay = createServer((near) => {
    const far = dialPlain({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1" });
    for (const socket of [near, far]) sockets.push(socket.on("error", () => {}));
    near.pipe(far).pipe(near);
  });
  relay.listen(0, "127.0.0.1");
  await once(relay, "listening");
  return {
    port: (relay.address() as AddressInfo).port,
    freeze: () => {
      for (const socket of sockets) socket.unpipe().pause();
    },
    [Symbol.dispose]: () => {
      relay.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** A caller on the TLS port. */
export async function callerOf(server: Server, by?: CertificateAndKey): Promise<TLSSocket> {
  const socket = dialTls({
    port: server.addresses.callers?.port ?? 0,
    host: "127.0.0.1",
    ca: pki.ca.cert,
    ...{ allowHalfOpen: true }, // which Node takes and its types do not know
    ...by,
  });
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  return socket;
}

/** The chunks that arrive, each read on its own. */
export function collect(socket: Readable): string[] {
  const reads: string[] = [];
  socket.on("data", (chunk: Buffer) => reads.push(chunk.toString("latin1")));
  return reads;
}

/** The promise, or a failure after a time that only a test that hangs takes. */
export async function within<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within 15 s: ${what}`)), 15_000);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export function fetchText(port: number | undefined, path: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    get({ port, path, host: "127.0.0.1", agent: false }, (response) => {
      const chunks = collect(response);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text: chunks.join("") }));
    }).on("error", reject);
  });
}
