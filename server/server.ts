import type { AddressInfo } from "node:net";
import type { SecureVersion, TLSSocket } from "node:tls";
import { type IdentityPattern, parsePattern } from "../shared/net/identity.ts";
import { type TlsFiles, TlsListener } from "../shared/net/tls.ts";
import { printable } from "../shared/outcomes.ts";
import { type Admin, startAdmin } from "../shared/process/admin.ts";
import { listenError } from "../shared/process/listen-error.ts";
import type { Logger } from "../shared/process/logger.ts";
import { ConfigError } from "../shared/process/options.ts";
import type { Door } from "./frontend/authenticate.ts";
import { type ConnectDeps, connect } from "./frontend/connect.ts";
import { Frontend, type FrontendHandler } from "./frontend/listen.ts";
import { DEFAULT_CLUSTER } from "./frontend/route.ts";
import { type Listening, listenUnix } from "./frontend/unix-socket.ts";
import { ServerMetrics } from "./metrics.ts";
import type { ServerOptions } from "./options.ts";
import { sharedCaWarning } from "./shared-ca.ts";
import { type Condition, readiness, status } from "./status.ts";
import { Registry } from "./tunnels/registry.ts";
import type { Tunnel } from "./tunnels/tunnel.ts";
import { RETRY_AFTER_S, UpgradePort } from "./tunnels/upgrade.ts";

export interface ServerDeps {
  readonly log: Logger;
  /** Port 0 means a free port, not "off": for tests. Listeners with TLS are then on when they have a certificate. */
  readonly listenEphemeral?: boolean;
}

export interface ServerAddresses {
  uds?: string;
  callers?: AddressInfo;
  agents?: AddressInfo;
  health?: AddressInfo;
  admin?: AddressInfo;
}

/** How long an agent may take to answer the close of its WebSocket, ms; an idle server has to be gone in a second. */
const CARRIER_CLOSE_MS = 500;
/** How long the splices may take to end what has lost its tunnel at the end of a drain, ms. */
const RESET_MS = 100;

/** Starts a server; resolves when every listener is open. */
export async function startServer(options: ServerOptions, deps: ServerDeps): Promise<Server> {
  const server = new Server(options, deps);
  try {
    await server.start();
    return server;
  } catch (error) {
    server.destroy(error as Error);
    throw error;
  }
}

/** A server: opens the doors for callers and agents, and closes them in order (design: "Lifecycle"). */
export class Server implements AsyncDisposable {
  readonly addresses: ServerAddresses = {};
  readonly metrics = new ServerMetrics();
  readonly tunnels: Registry;
  readonly #options: ServerOptions;
  readonly #log: Logger;
  readonly #ephemeral: boolean;
  readonly #warnings: string[] = [];
  readonly #frontends: Frontend[] = [];
  #unix: Listening | undefined;
  #callers: TlsListener | undefined;
  #agents: TlsListener | undefined;
  #upgrades: UpgradePort | undefined;
  #health: Admin | undefined;
  #admin: Admin | undefined;
  #draining = false;
  #closing: Promise<void> | undefined;

  constructor(options: ServerOptions, { log, listenEphemeral = false }: ServerDeps) {
    this.#options = options;
    this.#log = log;
    this.#ephemeral = listenEphemeral;
    const { serverId, maxAgents, drainTimeoutMs } = options;
    this.tunnels = new Registry([DEFAULT_CLUSTER], { serverId, maxAgents, drainTimeoutMs });
    this.metrics.watch({
      streams: () => this.#sum((tunnel) => tunnel.streamCount),
      bufferedBytes: () => this.#sum((tunnel) => tunnel.bufferedBytes),
    });
  }

  // ── start ──────────────────────────────────────────────────────────────────────────────────────────────────────

  async start(): Promise<void> {
    await this.#openForCallers();
    await this.#openForAgents();
    await this.#openForOperators();
    const warning = sharedCaWarning(this.#options);
    if (warning !== undefined) {
      this.#warnings.push(warning);
      this.#log.warn(warning);
    }
    this.#log.info({ serverId: this.#options.serverId, ...this.#shownAddresses() }, "server started");
  }

  async #openForCallers(): Promise<void> {
    const { udsName, udsMode, deleteExistingUdsFile, listenBacklog, serverPort, serverBindAddress } = this.#options;
    if (udsName !== "") {
      const frontend = this.#frontend({ kind: "unix", cluster: DEFAULT_CLUSTER });
      this.#unix = await listenUnix(
        { path: udsName, mode: udsMode, deleteExisting: deleteExistingUdsFile, backlog: listenBacklog },
        (socket) => frontend.take(socket),
      );
      this.addresses.uds = udsName;
    }
    const { serverCert: certFile, serverKey: keyFile, serverCaCert: caFile, frontendKeepaliveMs } = this.#options;
    if (!this.#isOn(serverPort, certFile)) return;
    const identities = patterns("--caller-identities", this.#options.callerIdentities);
    const frontend = this.#frontend({ kind: "tls", cluster: DEFAULT_CLUSTER, identities });
    this.#callers = this.#tlsListener("callers", { certFile, keyFile, caFile }, frontendKeepaliveMs, (socket) =>
      frontend.take(socket),
    );
    this.addresses.callers = await listen(this.#callers, serverPort, serverBindAddress, "--server-port");
  }

  #frontend(door: Door): Frontend {
    const deps: ConnectDeps = {
      options: this.#options,
      tunnels: this.tunnels,
      metrics: this.metrics,
      log: this.#log,
      draining: () => this.#draining,
    };
    const handler: FrontendHandler = {
      onConnect: (request, socket, head) => void connect(request, socket, head, door, deps),
      onRefused: (reason) => this.#log.info({ reason }, "request refused"),
    };
    const frontend = new Frontend(door, this.#options, handler);
    this.#frontends.push(frontend);
    return frontend;
  }

  async #openForAgents(): Promise<void> {
    const { agentPort, agentBindAddress, agentIdentities } = this.#options;
    const { clusterCert: certFile, clusterKey: keyFile, clusterCaCert: caFile } = this.#options;
    if (!this.#isOn(agentPort, certFile)) return;
    const upgrades = await UpgradePort.create({
      options: this.#options,
      identities: patterns("--agent-identities", agentIdentities),
      cluster: this.tunnels.cluster(DEFAULT_CLUSTER),
      metrics: this.metrics,
      log: this.#log,
      draining: () => this.#draining,
    });
    this.#upgrades = upgrades;
    this.#agents = this.#tlsListener("agents", { certFile, keyFile, caFile }, 0, (socket) => upgrades.take(socket));
    this.addresses.agents = await listen(this.#agents, agentPort, agentBindAddress, "--agent-port");
  }

  #tlsListener(
    name: "callers" | "agents",
    material: TlsFiles,
    keepAliveMs: number,
    onSecure: (socket: TLSSocket) => void,
  ): TlsListener {
    const { tlsMinVersion, cipherSuites, handshakeTimeoutMs, listenBacklog } = this.#options;
    try {
      return new TlsListener({
        material,
        minVersion: tlsMinVersion as SecureVersion,
        ciphers: cipherSuites,
        handshakeTimeoutMs,
        backlog: listenBacklog,
        keepAliveMs: keepAliveMs === 0 ? undefined : keepAliveMs,
        onSecure,
        onHandshakeFailed: (error, remote) => this.#onHandshakeFailed(name, error, remote),
        log: this.#log,
      });
    } catch (error) {
      throw new ConfigError([`The listener for ${name}: ${(error as Error).message}.`], { cause: error });
    }
  }

  #onHandshakeFailed(listener: "callers" | "agents", error: Error, remote: string): void {
    this.metrics.handshakeFailed(listener);
    // Who goes away in the middle is a probe of the port, mostly; who complains has something to say.
    const level = (error as NodeJS.ErrnoException).code === "ECONNRESET" ? "debug" : "info";
    this.#log[level]({ listener, remote, reason: printable(error.message) }, "TLS handshake failed");
  }

  async #openForOperators(): Promise<void> {
    const { healthPort, healthBindAddress, adminPort, adminBindAddress, serverId } = this.#options;
    const common = { metrics: this.metrics.registry, log: this.#log };
    if (this.#isOn(healthPort)) {
      const where = { port: healthPort, host: healthBindAddress, option: "--health-port" };
      this.#health = await startAdmin({ ...common, ...where, checks: () => readiness(this.#condition()) });
      this.addresses.health = this.#health.address;
    }
    if (this.#isOn(adminPort)) {
      const where = { port: adminPort, host: adminBindAddress, option: "--admin-port" };
      const show = () => status(serverId, this.tunnels, this.#draining);
      this.#admin = await startAdmin({ ...common, ...where, status: show });
      this.addresses.admin = this.#admin.address;
    }
  }

  #isOn(port: number, certFile = "any"): boolean {
    return port !== 0 || (this.#ephemeral && certFile !== "");
  }

  #condition(): Condition {
    const { addresses } = this;
    const tls = [
      ["callers", this.#callers],
      ["agents", this.#agents],
    ] as const;
    const present = tls.flatMap(([name, listener]) => (listener === undefined ? [] : [{ name, listener }]));
    return {
      listeners: [
        ...(this.#unix === undefined ? [] : [{ name: "unix socket", up: addresses.uds !== undefined }]),
        ...present.map(({ name }) => ({ name, up: addresses[name] !== undefined })),
      ],
      certificates: present.map(({ name, listener }) => ({
        name,
        notAfter: listener.notAfter,
        problem: listener.materialError,
      })),
      warnings: this.#warnings,
      draining: this.#draining,
      agents: [...this.tunnels.tunnels()].filter((tunnel) => !tunnel.draining).length,
      readyNeedsAgent: this.#options.readyNeedsAgent,
    };
  }

  // ── end ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Readiness false, no new CONNECTs and agents, go-away to the agents that are there. What is open lives on. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#callers?.stopAccepting();
    this.#agents?.stopAccepting();
    void this.#unix?.close();
    for (const { sockets } of this.#frontends) sockets.destroyWaiting();
    this.#upgrades?.sockets.destroyWaiting();
    for (const tunnel of this.tunnels.tunnels()) tunnel.drain(RETRY_AFTER_S * 1_000);
  }

  /** Drains, waits for the connections up to `--drain-timeout`, then releases everything. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { drainTimeoutMs } = this.#options;
    this.drain();
    // Callers, not streams: the last bytes of a stream that has ended may still be on their way to a slow caller.
    await Promise.all(this.#frontends.map(({ sockets }) => sockets.empty(drainTimeoutMs)));
    await Promise.all([...this.tunnels.tunnels()].map((tunnel) => tunnel.close(0)));
    await Promise.all(this.#frontends.map(({ sockets }) => sockets.empty(RESET_MS)));
    // Each WebSocket closes with its own handshake; Fastify only after the last, since it would cut them.
    await this.#upgrades?.sockets.empty(CARRIER_CLOSE_MS);
    await this.#release();
  }

  /** Ends everything now. */
  destroy(reason: Error): void {
    this.#draining = true;
    for (const tunnel of this.tunnels.tunnels()) tunnel.destroy(reason);
    this.#closing ??= this.#release();
    void this.#closing;
  }

  async #release(): Promise<void> {
    for (const { sockets } of this.#frontends) sockets.resetAll();
    this.#callers?.destroyAll();
    this.#upgrades?.sockets.resetAll();
    this.#agents?.destroyAll();
    // The health port goes last: until then it says "not ready".
    await Promise.all([this.#unix?.close(), this.#upgrades?.close()]);
    await Promise.all([this.#health?.close(), this.#admin?.close()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #sum(count: (tunnel: Tunnel) => number): number {
    let sum = 0;
    for (const tunnel of this.tunnels.tunnels()) sum += count(tunnel);
    return sum;
  }

  #shownAddresses(): Record<string, string> {
    const entries = Object.entries(this.addresses).map(([name, address]) => [
      name,
      typeof address === "string" ? address : `${address.address}:${address.port}`,
    ]);
    return Object.fromEntries(entries);
  }
}

async function listen(listener: TlsListener, port: number, host: string, option: string): Promise<AddressInfo> {
  try {
    return await listener.listen(port, host);
  } catch (error) {
    throw listenError((error as Error).cause ?? error, { port, host, option });
  }
}

function patterns(option: string, texts: readonly string[]): IdentityPattern[] {
  try {
    return texts.map(parsePattern);
  } catch (error) {
    throw new ConfigError([`${option}: ${(error as Error).message}.`], { cause: error });
  }
}
