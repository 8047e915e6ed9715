import type { AddressInfo } from "node:net";
import { type IdentityPattern, parsePattern } from "../shared/net/identity.ts";
import { formatTarget } from "../shared/net/target.ts";
import type { TlsListener } from "../shared/net/tls.ts";
import { type Admin, startAdmin } from "../shared/process/admin.ts";
import { liveLinks } from "../shared/process/link-metrics.ts";
import type { Logger } from "../shared/process/logger.ts";
import { MemoryPool } from "../shared/process/memory-pool.ts";
import { ConfigError } from "../shared/process/options.ts";
import type { Door } from "./frontend/authenticate.ts";
import { type ConnectDeps, connect } from "./frontend/connect.ts";
import { Frontend, type FrontendHandler } from "./frontend/listen.ts";
import { DEFAULT_CLUSTER } from "./frontend/route.ts";
import { UnixListener } from "./frontend/unix-listener.ts";
import { type ListenerName, ServerMetrics } from "./metrics.ts";
import type { ServerOptions } from "./options.ts";
import { sharedCaWarning } from "./shared-ca.ts";
import { type Condition, readiness, status } from "./status.ts";
import { StrangerLog } from "./stranger-log.ts";
import { openTlsPort, type TlsPort } from "./tls-port.ts";
import { Links } from "./tunnels/links.ts";
import { RETRY_AFTER_S } from "./tunnels/refusal.ts";
import { Registry } from "./tunnels/registry.ts";
import type { Tunnel } from "./tunnels/tunnel.ts";
import { UpgradePort } from "./tunnels/upgrade.ts";

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

/** How long the splices may take to end what has lost its tunnel at the end of a drain, ms. */
const RESET_MS = 100;
/**
 * How long agents that have no tunnel may take to hear why, ms. Those with one had their time when the tunnel closed, and
 * an idle server has to be gone in a second, whoever is frozen.
 */
const REFUSED_MS = 300;

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
  readonly #links: Links;
  readonly #pool: MemoryPool;
  readonly #options: ServerOptions;
  readonly #log: Logger;
  readonly #strangers: StrangerLog;
  readonly #ephemeral: boolean;
  readonly #warnings: string[] = [];
  readonly #frontends: Frontend[] = [];
  #unix: UnixListener | undefined;
  #callers: TlsListener | undefined;
  #agents: TlsListener | undefined;
  #upgrades: UpgradePort | undefined;
  #health: Admin | undefined;
  #admin: Admin | undefined;
  #draining = false;
  #closing: Promise<void> | undefined;
  #releasing: Promise<void> | undefined;

  constructor(options: ServerOptions, { log, listenEphemeral = false }: ServerDeps) {
    this.#options = options;
    this.#log = log;
    this.#strangers = new StrangerLog(log);
    this.#ephemeral = listenEphemeral;
    const { serverId, maxAgents, drainTimeoutMs } = options;
    this.tunnels = new Registry([DEFAULT_CLUSTER], { serverId, maxAgents, drainTimeoutMs });
    this.#links = new Links(serverId);
    this.#pool = new MemoryPool(options.memoryLimit);
    this.metrics.memory.watch(this.#pool);
    this.metrics.links.watch(() => liveLinks(this.tunnels.tunnels()));
    this.metrics.watch({
      streams: () => this.#sum((tunnel) => tunnel.streamCount),
      bufferedBytes: () => this.#sum((tunnel) => tunnel.bufferedBytes),
      resetForMemory: () => this.#sum((tunnel) => tunnel.resetForMemory),
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
      this.#unix = await UnixListener.open({
        ...{ path: udsName, mode: udsMode, deleteExisting: deleteExistingUdsFile, backlog: listenBacklog },
        onSocket: (socket) => frontend.take(socket),
        log: this.#log,
      });
      this.addresses.uds = udsName;
    }
    const { serverCert: certFile, serverKey: keyFile, serverCaCert: caFile } = this.#options;
    if (!this.#isOn(serverPort, certFile)) return;
    const identities = patterns("--caller-identities", this.#options.callerIdentities);
    const frontend = this.#frontend({ kind: "tls", cluster: DEFAULT_CLUSTER, identities });
    this.#callers = await this.#openTls({
      name: "callers",
      material: { certFile, keyFile, caFile },
      ...{ port: serverPort, host: serverBindAddress, option: "--server-port" },
      keepaliveMs: this.#options.frontendKeepaliveMs,
      turnsAway: false, // kube-apiserver would not obey
      onSecure: (socket) => frontend.take(socket),
    });
  }

  #frontend(door: Door): Frontend {
    const deps: ConnectDeps = {
      options: this.#options,
      tunnels: this.tunnels,
      metrics: this.metrics,
      log: this.#log,
      strangers: this.#strangers,
      draining: () => this.#draining,
    };
    const handler: FrontendHandler = {
      onConnect: (request, socket, head) => void connect(request, socket, head, door, deps),
      onRefused: (reason) => this.#strangers.tell("info", { reason }, "request refused"),
      onDropped: () => this.#onDropped(door.kind === "unix" ? "unix" : "callers"),
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
      links: this.#links,
      pool: this.#pool,
      metrics: this.metrics,
      log: this.#log,
      strangers: this.#strangers,
      draining: () => this.#draining,
      onDropped: () => this.#onDropped("agents"),
    });
    this.#upgrades = upgrades;
    this.#agents = await this.#openTls({
      name: "agents",
      material: { certFile, keyFile, caFile },
      ...{ port: agentPort, host: agentBindAddress, option: "--agent-port" },
      keepaliveMs: 0, // the carrier has its own
      turnsAway: true,
      onSecure: (socket, backInMs) => upgrades.take(socket, backInMs),
      onRenewed: () => {
        for (const tunnel of this.tunnels.tunnels()) tunnel.rotate("the server's certificates have changed");
      },
    });
  }

  async #openTls(port: TlsPort): Promise<TlsListener> {
    const { listener, address } = await openTlsPort(port, {
      options: this.#options,
      metrics: this.metrics,
      log: this.#log,
      strangers: this.#strangers,
    });
    this.addresses[port.name] = address;
    return listener;
  }

  #onDropped(listener: ListenerName): void {
    this.metrics.waitingDropped(listener);
    this.#strangers.tell("warn", { listener }, "connection dropped: too many say nothing (--max-waiting-connections)");
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
      const show = () => status(serverId, this.tunnels, this.#pool, this.#draining);
      this.#admin = await startAdmin({ ...common, ...where, status: show });
      this.addresses.admin = this.#admin.address;
    }
  }

  #isOn(port: number, certFile = "any"): boolean {
    return port !== 0 || (this.#ephemeral && certFile !== "");
  }

  #condition(): Condition {
    const tls = [
      ["callers", this.#callers],
      ["agents", this.#agents],
    ] as const;
    const present = tls.flatMap(([name, listener]) => (listener === undefined ? [] : [{ name, listener }]));
    return {
      listeners: [
        ...(this.#unix === undefined ? [] : [{ name: "unix socket", ...this.#unix.state }]),
        ...present.map(({ name, listener }) => ({ name, up: listener.listening })),
      ],
      certificates: present.map(({ name, listener }) => ({
        name,
        notAfter: listener.notAfter,
        problem: listener.materialError,
      })),
      warnings: this.#warnings,
      draining: this.#draining,
      agents: [...this.tunnels.tunnels()].filter((tunnel) => !tunnel.draining && !tunnel.suspended).length,
      readyNeedsAgent: this.#options.readyNeedsAgent,
    };
  }

  // ── end ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Readiness false, no new CONNECTs and agents, go-away to the agents that are there. What is open lives on. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#callers?.stopAccepting();
    void this.#unix?.close();
    for (const { sockets } of this.#frontends) sockets.destroyWaiting();
    this.#upgrades?.sockets.destroyWaiting();
    for (const tunnel of this.tunnels.tunnels()) tunnel.drain(RETRY_AFTER_S * 1_000);
    // With open streams the port stays: their links may need another carrier.
    if (this.#links.size === 0) this.#agents?.stopAccepting();
  }

  /** Drains, waits for the connections up to `--drain-timeout`, then releases everything. */
  close(): Promise<void> {
    this.#closing ??= this.#releasing ?? this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const deadline = performance.now() + this.#options.drainTimeoutMs;
    const leftMs = () => Math.max(0, deadline - performance.now());
    this.drain();
    // Callers, not streams: the last bytes of a stream that has ended may still be on their way to a slow caller.
    await Promise.all(this.#frontends.map(({ sockets }) => sockets.empty(leftMs())));
    await Promise.all([...this.tunnels.tunnels()].map((tunnel) => tunnel.close(leftMs())));
    this.#agents?.stopAccepting();
    await Promise.all(this.#frontends.map(({ sockets }) => sockets.empty(RESET_MS)));
    await this.#upgrades?.sockets.empty(REFUSED_MS);
    await this.#release();
  }

  /** Ends everything now, also while a `close` waits. */
  destroy(reason: Error): void {
    this.#draining = true;
    for (const tunnel of this.tunnels.tunnels()) tunnel.destroy(reason);
    void this.#release();
  }

  #release(): Promise<void> {
    this.#releasing ??= this.#releaseAll();
    return this.#releasing;
  }

  async #releaseAll(): Promise<void> {
    for (const { sockets } of this.#frontends) sockets.resetAll();
    this.#callers?.destroyAll();
    this.#upgrades?.sockets.resetAll();
    this.#agents?.destroyAll();
    // Fastify only after the last carrier, since it would cut what is left.
    await Promise.all([this.#unix?.close(), this.#upgrades?.close()]);
    // The health port goes last: until then it says "not ready".
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
      typeof address === "string" ? address : formatTarget({ host: address.address, port: address.port }),
    ]);
    return Object.fromEntries(entries);
  }
}

function patterns(option: string, texts: readonly string[]): IdentityPattern[] {
  try {
    return texts.map(parsePattern);
  } catch (error) {
    throw new ConfigError([`${option}: ${(error as Error).message}.`], { cause: error });
  }
}
