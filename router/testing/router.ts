import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { type RouterOptions, routerOptions } from "../options.ts";
import { type Router, type RouterDeps, startRouter } from "../router.ts";

/** One line of a router's log. */
export type Line = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

/** The keys of a route that a test sets. */
interface RouteText {
  readonly sni: readonly string[];
  readonly to: readonly string[];
  readonly sendProxy?: "v2";
}

/** A router on free ports with its file of routes, its log, and whoever connects to it. */
export class TestRouter implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "culvert-router-"));
  readonly file = join(this.#folder, "routes.yaml");
  readonly lines: Line[] = [];
  readonly #clients = new Set<Socket>();
  #router: Router | undefined;

  get router(): Router {
    assert.ok(this.#router);
    return this.#router;
  }

  async start(
    routes: readonly RouteText[],
    more: Partial<RouterOptions> = {},
    files?: RouterDeps["files"],
  ): Promise<this> {
    this.write(routes);
    const destination = { write: (line: string) => void this.lines.push(JSON.parse(line)) };
    const options: RouterOptions = {
      ...defaultsOf(routerOptions),
      routes: this.file,
      port: 0,
      bindAddress: "127.0.0.1",
      healthPort: 0,
      healthBindAddress: "127.0.0.1",
      adminPort: 0,
      drainTimeoutMs: 2_000,
      ...more,
    };
    const log = createLogger({ level: "debug", format: "json", name: "router", destination });
    this.#router = await startRouter(options, { log, listenEphemeral: true, ...(files && { files }) });
    return this;
  }

  /** The file in its next version. */
  write(routes: readonly RouteText[] | string): void {
    const text = typeof routes === "string" ? routes : routes.map((route) => JSON.stringify(route)).join("\n---\n");
    writeFileSync(this.file, text);
  }

  async dial(): Promise<Socket> {
    const client = connect({ port: this.router.addresses.clients?.port ?? 0, host: "127.0.0.1", allowHalfOpen: true });
    this.#clients.add(client.on("error", () => {}));
    await once(client, "connect");
    return client;
  }

  /** The lines with this message. */
  logged(message: RegExp): readonly Line[] {
    return this.lines.filter(({ msg }) => message.test(msg));
  }

  async get(port: "health" | "admin", path: string): Promise<{ status: number; text: string }> {
    const response = await fetch(`http://127.0.0.1:${this.router.addresses[port]?.port}${path}`);
    return { status: response.status, text: await response.text() };
  }

  /** The value of one series of the metrics, by its whole name; 0 while it is not there. */
  async metric(series: string): Promise<number> {
    const text = await this.router.metrics.registry.metrics();
    return Number(
      text
        .split("\n")
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length + 1) ?? 0,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.destroy();
    this.#router?.destroy(new Error("the test ends"));
    await this.#router?.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** A backend that keeps what arrives and, unless it is silent, sends it back; its end follows the client's. */
export class TestBackend implements AsyncDisposable {
  address = "";
  readonly received: Buffer[] = [];
  readonly sockets = new Set<Socket>();
  accepted = 0;
  readonly #server = createServer({ allowHalfOpen: true }, (socket) => {
    this.accepted++;
    this.sockets.add(socket.on("error", () => {}));
    socket.on("close", () => this.sockets.delete(socket));
    socket.on("data", (chunk: Buffer) => {
      this.received.push(chunk);
      socket.write(chunk);
    });
    socket.on("end", () => socket.end());
  });

  async start(): Promise<this> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.address = `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  get bytes(): Buffer {
    return Buffer.concat(this.received);
  }

  /** From now on nobody listens there. */
  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    if (this.#server.listening) await new Promise((resolve) => this.#server.close(resolve));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/** All that comes, and how it ended. */
export async function readAll(client: Socket): Promise<{ bytes: Buffer; error: string | undefined }> {
  const chunks: Buffer[] = [];
  let error: string | undefined;
  client.on("data", (chunk: Buffer) => chunks.push(chunk));
  client.on("error", ({ code }: NodeJS.ErrnoException) => {
    error = code;
  });
  client.on("end", () => client.end());
  if (!client.closed) await new Promise((resolve) => client.on("close", resolve));
  return { bytes: Buffer.concat(chunks), error };
}

/** The next bytes, this number of them. */
export async function readSome(client: Socket, length: number): Promise<Buffer> {
  let chunk: Buffer | null = client.read(length);
  while (chunk === null) {
    await once(client, "readable", { signal: AbortSignal.timeout(5_000) });
    chunk = client.read(length);
  }
  return chunk;
}
