import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before } from "node:test";
import tls, { type TLSSocket } from "node:tls";
import { until } from "../../basics/testing/wait.ts";
import { Authority, type CertificateAndKey } from "../../pki/certificates.ts";
import { WatchedTls } from "../../tls/tls-material.ts";
import type { Acceptor } from "../acceptor.ts";
import { type TlsListenerOptions, tlsListener, type VirtualHost } from "../listeners.ts";

export let authority: Authority;
let client: CertificateAndKey;
before(async () => {
  authority = await Authority.create("ca");
  client = await authority.issue({ cn: "client", usage: "client" });
});

/** A TLS listener of its own, and clients that come to it. */
export class Fixture implements AsyncDisposable {
  readonly dir: string;
  readonly secured: { socket: TLSSocket; host: VirtualHost }[] = [];
  readonly failed: string[] = [];
  readonly logged: string[] = [];
  readonly #clients: Socket[] = [];
  files!: WatchedTls;
  listener!: Acceptor;
  port = 0;

  constructor(dir: string) {
    this.dir = dir;
  }

  async write(pair: CertificateAndKey, ca: string): Promise<void> {
    for (const [name, content] of Object.entries({ "s.crt": pair.cert, "s.key": pair.key, "ca.crt": ca })) {
      await writeFile(join(this.dir, `${name}.new`), content);
      await rename(join(this.dir, `${name}.new`), join(this.dir, name));
    }
  }

  async listen(options: Partial<TlsListenerOptions<VirtualHost>>): Promise<void> {
    const [certFile, keyFile, caFile] = ["s.crt", "s.key", "ca.crt"].map((name) => join(this.dir, name)) as [
      string,
      string,
      string,
    ];
    this.files = new WatchedTls(
      { certFile, keyFile, caFile },
      {
        log: {
          info: (_fields, message) => this.logged.push(message),
          error: (fields, message) => this.logged.push(`${message}: ${JSON.stringify(fields)}`),
        },
        watch: { settleMs: 20 },
      },
    );
    const { files } = this;
    const host: VirtualHost = {
      get tls() {
        return files.content;
      },
    };
    this.listener = tlsListener({
      hosts: { single: host, find: () => host },
      handshakeTimeoutMs: 60_000, // longer than any test waits
      maxHandshakes: 1_000,
      maxWaitingHandshakes: 1_000,
      backlog: 128,
      onConnection: ({ socket, host }) => this.secured.push({ socket, host }),
      onHandshakeFailed: ({ how, error, remote }) => this.failed.push(`${how} ${remote} ${error.message}`),
      onError: (error) => this.logged.push(error.message),
      ...options,
    });
    this.port = (await this.listener.listen(0, "127.0.0.1")).port;
  }

  tls(options: tls.ConnectionOptions = {}): TLSSocket {
    const { port } = this;
    const socket = tls.connect({
      port,
      host: "127.0.0.1",
      servername: "localhost",
      ca: authority.cert,
      ...client,
      ...options,
    });
    this.#clients.push(socket.on("error", () => {}));
    return socket;
  }

  tcp(): Socket {
    const socket = connect({ port: this.port, host: "127.0.0.1" }).on("error", () => {});
    this.#clients.push(socket);
    return socket.resume();
  }

  async next(count = 1): Promise<{ socket: TLSSocket; host: VirtualHost }> {
    await until(() => this.secured.length >= count);
    return this.secured[count - 1] ?? assert.fail();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#clients) socket.destroy();
    this.files.close();
    this.listener.destroyAll();
    await until(() => this.listener.connections === 0);
    await rm(this.dir, { recursive: true });
  }
}

export async function listening(options: Partial<TlsListenerOptions<VirtualHost>> = {}): Promise<Fixture> {
  const fixture = new Fixture(await mkdtemp(join(tmpdir(), "culvert-tls-")));
  await fixture.write(await authority.issue({ cn: "one", names: ["localhost"], usage: "server" }), authority.cert);
  await fixture.listen(options);
  return fixture;
}

const UPLOAD_BYTES = 8 << 20;
/** Reads of 16 KiB would be as many at least. */
export const RECORDS_OF_UPLOAD = UPLOAD_BYTES / 16_384;

/**
 * How many reads an upload takes: the least of three, each on a connection of its own, because a kernel that is busy or
 * short of buffers makes more.
 */
export async function readsOfUpload(it: Fixture): Promise<number> {
  const counts: number[] = [];
  const others = it.listener.connections;
  while (counts.length < 3) {
    const socket = it.tls();
    const { socket: accepted } = await it.next(it.secured.length + 1);
    const before = await readCalls();
    socket.end(Buffer.alloc(UPLOAD_BYTES));
    await once(accepted.resume(), "end");
    counts.push((await readCalls()) - before);
    assert.equal(accepted.bytesRead, UPLOAD_BYTES);
    accepted.destroy();
    await until(() => it.listener.connections === others);
  }
  return Math.min(...counts);
}

/** How often this process has called read(2). */
async function readCalls(): Promise<number> {
  return Number(/syscr: (\d+)/.exec(await readFile("/proc/self/io", "utf8"))?.[1]);
}
