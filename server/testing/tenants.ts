import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { connect as dialPlain } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { stringify } from "yaml";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Hello, ProvenResume } from "../../shared/link/control.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Balancer } from "./balancer.ts";
import { PlayedAgent } from "./played-agent.ts";
import { collect, start, type TestServer } from "./server.ts";

/** A cluster of a test: its names, its certificates, and its document. */
export class Tenant {
  readonly name: string;
  readonly #folder: string;
  readonly authority: Authority;
  readonly server: CertificateAndKey;
  readonly agent: CertificateAndKey;
  readonly caller: CertificateAndKey;

  private constructor(
    name: string,
    folder: string,
    authority: Authority,
    pairs: { server: CertificateAndKey; agent: CertificateAndKey; caller: CertificateAndKey },
  ) {
    this.name = name;
    this.#folder = folder;
    this.authority = authority;
    this.server = pairs.server;
    this.agent = pairs.agent;
    this.caller = pairs.caller;
  }

  /** With a CA of its own, or under one that is shared. */
  static async create(name: string, folder: string, shared?: Authority): Promise<Tenant> {
    const authority = shared ?? (await Authority.create(name));
    const tenant = new Tenant(name, folder, authority, {
      server: await authority.issue({ cn: name, names: [`${name}.example`, "127.0.0.1"], usage: "server" }),
      agent: await authority.issue({ cn: "agent", o: [`agents:${name}`], usage: "client" }),
      caller: await authority.issue({ cn: "kube-apiserver", o: [`callers:${name}`], usage: "client" }),
    });
    await writeFile(join(folder, `${name}.crt`), tenant.server.cert);
    await writeFile(join(folder, `${name}.key`), tenant.server.key);
    await writeFile(join(folder, `${name}.ca`), authority.cert);
    return tenant;
  }

  get sni(): string {
    return `${this.name}.example`;
  }

  get uds(): string {
    return join(this.#folder, `${this.name}.sock`);
  }

  /** Writes the document; `more` is put over what a cluster with an agents' and a callers' port has. */
  async write(more: { agents?: object; callers?: object; [key: string]: unknown } = {}): Promise<void> {
    const { name } = this;
    const files = { cert: `${name}.crt`, key: `${name}.key`, ca: `${name}.ca` };
    const side = (role: string) => ({ sni: [this.sni], ...files, identities: [`O=${role}:${name}`] });
    const { agents, callers, ...rest } = more;
    const path = join(this.#folder, `${name}.yaml`);
    const document = {
      name,
      ...rest,
      agents: { ...side("agents"), ...agents },
      callers: { ...side("callers"), uds: `${name}.sock`, ...callers },
    };
    await writeFile(`${path}.new`, stringify(document));
    await rename(`${path}.new`, path);
  }

  remove(): Promise<void> {
    return rm(join(this.#folder, `${this.name}.yaml`));
  }
}

/** A folder of tenants and a server that serves them. */
export class Tenants implements AsyncDisposable {
  readonly folder: string;
  readonly #tenants = new Map<string, Tenant>();
  #server: TestServer | undefined;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** `names` with a CA each, `sharing` under one. */
  static async create(names: readonly string[], sharing: readonly string[] = []): Promise<Tenants> {
    const all = new Tenants(await mkdtemp(join(tmpdir(), "culvert-tenants-")));
    const shared = await Authority.create("shared");
    for (const name of names) all.#tenants.set(name, await Tenant.create(name, all.folder));
    for (const name of sharing) all.#tenants.set(name, await Tenant.create(name, all.folder, shared));
    for (const tenant of all.#tenants.values()) await tenant.write();
    return all;
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
    await rm(this.folder, { recursive: true, force: true });
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
  /** The error with which its socket has closed; `undefined` for an end in order. */
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
