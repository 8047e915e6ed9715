import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as dialPlain } from "node:net";
import type { Duplex } from "node:stream";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { ClusterFiles } from "../../e2e/harness/cluster-files.ts";
import { TempDir } from "../../e2e/harness/temp.ts";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Hello, ProvenResume } from "../../shared/link/control.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Balancer } from "./balancer.ts";
import { PlayedAgent } from "./played-agent.ts";
import { collect, start, type TestServer } from "./server.ts";

/** A cluster of a test, with a certificate of an agent and one of a caller. */
export type Tenant = ClusterFiles & { readonly agent: CertificateAndKey; readonly caller: CertificateAndKey };

/** A folder of tenants and a server that serves them. */
export class Tenants implements AsyncDisposable {
  readonly #dir = new TempDir();
  readonly #tenants = new Map<string, Tenant>();
  #server: TestServer | undefined;

  /** `names` with a CA each, `sharing` under one. */
  static async create(names: readonly string[], sharing: readonly string[] = []): Promise<Tenants> {
    const all = new Tenants();
    const shared = await Authority.create("shared");
    for (const name of [...names, ...sharing]) {
      const files = await ClusterFiles.create(name, all.#dir, sharing.includes(name) ? shared : undefined);
      await files.write();
      const pairs = { agent: await files.agentPair, caller: await files.callerPair };
      all.#tenants.set(name, Object.assign(files, pairs));
    }
    return all;
  }

  get folder(): string {
    return this.#dir.path;
  }

  async start(options: Parameters<typeof start>[0] = {}): Promise<TestServer> {
    this.#server = await start({ clusters: this.folder, ...options });
    return this.#server;
  }

  get(name: string): Tenant {
    return this.#tenants.get(name) ?? assert.fail(`no tenant ${name}`);
  }

  get server(): TestServer {
    return this.#server ?? assert.fail("not started");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server?.close();
    this.#dir[Symbol.dispose]();
  }
}

export interface AgentWords {
  /** Under whose name, and trusting whose CA. */
  readonly at: Tenant;
  readonly by?: CertificateAndKey | undefined;
  /** `Authorization: Bearer`. */
  readonly token?: string;
  readonly agentId?: string;
  readonly instance?: string;
  /** In the hello. */
  readonly cluster?: string;
  readonly resume?: ProvenResume;
  /** In the hello, in Konnectivity's form. */
  readonly identifiers?: string;
  /** The balancer that ends TLS in front of the port without. */
  readonly through?: Pick<Balancer, "port" | "authority">;
  /** In place of the cluster's own name. */
  readonly host?: string;
}

/** How such an agent dials. */
export function dialOptionsOf(server: TestServer, words: AgentWords) {
  const { at, by, token, agentId = "a", instance = "1", cluster, resume, through, host = at.sni } = words;
  const { identifiers } = words;
  return {
    host,
    port: 443,
    address: { host: "127.0.0.1", port: through?.port ?? server.addresses.agents?.port ?? 0 },
    path: "/culvert/v1/tunnel",
    tls: { ca: (through ?? at).authority.cert, ...by },
    ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
    hello: (): Hello => ({
      ...{ type: "hello", version: 1, agentId, instance, software: "test" },
      ...(cluster !== undefined && { cluster }),
      ...(resume !== undefined && { resume }),
      ...(identifiers !== undefined && { identifiers: parseIdentifiers([identifiers]) }),
    }),
    keepaliveMs: 20_000,
    timeoutMs: 5_000,
  };
}

/**
 * An agent whose every target says `greeting`, ends, and reads nothing; an empty one: it stays. Without one they echo.
 */
export async function agentAt(server: TestServer, greeting: string | Buffer | undefined, words: AgentWords) {
  return new PlayedAgent(await dialCarrier(dialOptionsOf(server, words)), async (stream) => {
    stream.accept();
    await readOpen(stream, 1_000);
    stream.write(encodeAnswer({ ok: true }));
    if (greeting === undefined) stream.pipe(stream);
    else if (greeting.length > 0) stream.end(greeting);
  });
}

/** Everything that a CONNECT is answered with, to the end. */
export async function answerOf(socket: Duplex, lines = `CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: x\r\n\r\n`) {
  const reads = collect(socket);
  socket.write(lines);
  await until(() => socket.readableEnded || socket.destroyed);
  socket.destroy();
  return reads.join("");
}

/** A caller on the TLS port, once its handshake is done or has failed. */
export async function callerAt(
  server: TestServer,
  servername: string,
  by: CertificateAndKey | undefined,
): Promise<TLSSocket> {
  const port = server.addresses.callers?.port ?? 0;
  const socket = dialTls({ port, host: "127.0.0.1", servername, rejectUnauthorized: false, ...by });
  socket.on("error", () => {});
  await new Promise((resolve) => socket.once("secureConnect", resolve).once("close", resolve));
  return socket;
}

export async function unixCallerAt(path: string): Promise<Duplex> {
  const socket = dialPlain(path).on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** A caller on the TLS port whose balancer says `header` first. */
export async function callerBehind(server: TestServer, header: Buffer, tenant: Tenant): Promise<TLSSocket> {
  const balancer = dialPlain(server.addresses.callers?.port ?? 0, "127.0.0.1").on("error", () => {});
  await once(balancer, "connect");
  balancer.write(header);
  const socket = dialTls({ socket: balancer, servername: tenant.sni, ca: tenant.authority.cert, ...tenant.caller });
  socket.on("error", () => {});
  await once(socket, "secureConnect");
  return socket;
}

/** A CONNECT that was answered 200, through an agent whose targets echo. */
export class OpenCaller {
  readonly socket: Duplex;
  readonly #reads: string[];
  /** The error with which its socket has closed; `undefined` for a clean end. */
  readonly closed: Promise<NodeJS.ErrnoException | undefined>;
  isClosed = false;

  private constructor(socket: Duplex) {
    this.socket = socket;
    this.#reads = collect(socket);
    let failed: NodeJS.ErrnoException | undefined;
    socket.on("error", (error) => {
      failed = error;
    });
    this.closed = new Promise((resolve) => {
      socket.on("close", () => {
        this.isClosed = true;
        resolve(failed);
      });
    });
  }

  static async open(socket: Duplex, header = "", target = "10.0.0.1:10250"): Promise<OpenCaller> {
    const caller = new OpenCaller(socket);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${header}\r\n`);
    await until(() => caller.#reads.length > 0 || caller.isClosed);
    assert.match(caller.#reads.join(""), /^HTTP\/1\.1 200 /);
    return caller;
  }

  async echo(words: string): Promise<void> {
    this.socket.write(words);
    await until(() => this.#reads.join("").endsWith(words) || this.isClosed);
    assert.ok(!this.isClosed, "it is still open");
  }
}
