import type { AddressInfo } from "node:net";
import { formatTarget } from "../shared/address/target.ts";
import { type Admin, startAdmin } from "../shared/admin/admin.ts";
import { oncePerSecond } from "../shared/basics/timers.ts";
import { TurnQueue } from "../shared/basics/turn-queue.ts";
import { controlGroups } from "../shared/limits/memory-limit.ts";
import { MemoryPool } from "../shared/limits/memory-pool.ts";
import type { MemoryShare } from "../shared/limits/memory-share.ts";
import { MemoryWatch } from "../shared/limits/memory-watch.ts";
import type { TlsListener } from "../shared/listen/listeners.ts";
import { liveLinks } from "../shared/runtime/common-metrics.ts";
import { FileDescriptors } from "../shared/runtime/file-descriptors.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import { ThrottledLog } from "../shared/runtime/throttled-log.ts";
import { type Expiring, expiryWarnings } from "../shared/tls/expiry.ts";
import { AgentPorts } from "./agents/agent-ports.ts";
import { RETRY_AFTER_S } from "./agents/refusal.ts";
import type { Door } from "./callers/authenticate.ts";
import { Entrances } from "./callers/caller-listeners.ts";
import { CallersAgain } from "./callers/callers-again.ts";
import { type ConnectDeps, connect } from "./callers/connect.ts";
import type { FrontendHandler } from "./callers/connect-reader.ts";
import type { ClusterRuntime } from "./cluster-runtime/cluster-runtime.ts";
import { type ClusterSource, Clusters } from "./cluster-runtime/clusters.ts";
import { FlagTls, flagCluster } from "./cluster-runtime/flags.ts";
import { endRevokedAgents, reverifyAgents, rotateAgents } from "./cluster-runtime/reverify-agents.ts";
import type { ClusterVirtualHost } from "./cluster-runtime/virtual-host.ts";
import type { ClusterChanges } from "./clusters/cluster.ts";
import { ClusterStore } from "./clusters/store.ts";
import { tellLeft } from "./listeners/closed-early.ts";
import { fileNeedWarning } from "./listeners/file-need.ts";
import { openTlsPort } from "./listeners/tls-port.ts";
import { WaitingConnections } from "./listeners/waiting-connections.ts";
import { type ListenerName, ServerMetrics } from "./metrics/server-metrics.ts";
import { checkConnect } from "./operators/connect-check.ts";
import { roundTripsOf } from "./operators/round-trips.ts";
import { type Condition, endingSoon, readiness, type ServerStatus, status } from "./operators/status.ts";
import type { ServerOptions } from "./options/options.ts";
import { Links } from "./tunnels/links.ts";
import { Registry } from "./tunnels/registry.ts";
import type { Tunnel } from "./tunnels/tunnel.ts";

export interface ServerDeps {
  readonly log: Logger;
  /**
   * Port 0 means a free port, not "off": for tests. Listeners with TLS are then on when they have a certificate, the one
   * without when it trusts somebody.
   */
  readonly listenEphemeral?: boolean;
}

export interface ServerAddresses {
  uds?: string;
  callers?: AddressInfo;
  agents?: AddressInfo;
  "agents-insecure"?: AddressInfo;
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
  readonly #memoryOfStrangers: MemoryShare;
  #memoryWatch: MemoryWatch | undefined;
  readonly #options: ServerOptions;
  readonly #log: Logger;
  readonly #throttledLog: ThrottledLog;
  readonly #ephemeral: boolean;
  readonly #files: FileDescriptors;
  readonly #entrances: Entrances;
  #store: ClusterStore | undefined;
  #serving: Clusters | undefined;
  #flags: FlagTls | undefined;
  #callers: TlsListener<ClusterVirtualHost> | undefined;
  readonly #agents: AgentPorts;
  /** They look at every cluster, and whoever reaches the health port may ask for them. */
  readonly #recentFaults = oncePerSecond(() => this.#clusterFaults());
  readonly #recentWarnings = oncePerSecond(() => this.#serving?.warnings() ?? []);
  readonly #recentEnds = oncePerSecond(() => expiryWarnings(endingSoon(this.#expiring()), new Date()));
  readonly #recentReviews = oncePerSecond(() => this.#serving?.tokenReviews() ?? []);
  /** What is verified again, of all clusters. */
  readonly #turns = new TurnQueue();
  readonly #callersAgain = new CallersAgain(this.#turns);
  #health: Admin | undefined;
  #admin: Admin | undefined;
  #started = false;
  #draining = false;
  #closing: Promise<void> | undefined;
  #releasing: Promise<void> | undefined;

  constructor(options: ServerOptions, { log, listenEphemeral = false }: ServerDeps) {
    this.#options = options;
    this.#log = log;
    this.#throttledLog = new ThrottledLog(log);
    const { metrics } = this;
    this.#files = new FileDescriptors({ metrics, throttledLog: this.#throttledLog, owner: "this server" });
    this.#ephemeral = listenEphemeral;
    this.#pool = new MemoryPool(options.memoryLimit);
    this.#memoryOfStrangers = this.#pool.share("");
    this.tunnels = new Registry(this.#pool);
    const waiting = new WaitingConnections(options.maxWaitingConnections);
    this.#entrances = new Entrances({ options, waiting, log, handler: (door) => this.#handler(door) });
    this.#links = new Links(options.serverId);
    this.#agents = new AgentPorts({
      ...{ options, waiting, links: this.#links },
      ...{ metrics: this.metrics, log, throttledLog: this.#throttledLog, memory: this.#memoryOfStrangers },
      draining: () => this.#draining,
      onDropped: (port) => this.#onDropped(port),
    });
    this.metrics.memory.watch(this.#pool);
    this.metrics.links.watch(() => liveLinks(this.tunnels.tunnels()));
    this.metrics.watch(() => this.tunnels.clusters());
    this.metrics.expiry.watch(() => this.#expiring());
    this.metrics.watchClusters({
      figuresOf: (cluster) => this.#serving?.get(cluster)?.figures,
      faults: () => this.#clusterFaults(),
      tokenReviews: () => this.#serving?.tokenReviews() ?? [],
    });
  }

  // ── start ──────────────────────────────────────────────────────────────────────────────────────────────────────

  async start(): Promise<void> {
    const serving = await this.#serve();
    await this.#openForCallers(serving);
    await this.#openForAgents(serving);
    await this.#openForOperators();
    const warning = this.#fileNeedWarning();
    if (warning !== undefined) this.#log.warn(warning);
    this.#files.start();
    const groups = controlGroups("/");
    if (groups !== undefined) this.#memoryWatch = new MemoryWatch(groups, this.#pool);
    const clusters = this.#store?.clusters.size;
    this.#log.info({ serverId: this.#options.serverId, clusters, ...this.#shownAddresses() }, "server started");
  }

  #fileNeedWarning(): string | undefined {
    const entries = {
      tcpPorts: this.#tcpListeners().length,
      unixSockets: this.#entrances.unixStates().length,
      operatorPorts: [this.#health, this.#admin].filter((port) => port !== undefined).length,
    };
    return fileNeedWarning(this.#options, entries);
  }

  /** Which clusters there are, and what the flags say for all of them. */
  async #serve(): Promise<Clusters> {
    const { clusters, serverId, maxAgents, drainTimeoutMs } = this.#options;
    const flags = new FlagTls(this.#options, {
      log: this.#log,
      onAgentsRenewed: (caChanged) => {
        for (const served of this.#serving?.all() ?? []) {
          if (caChanged && served.cluster.agents.ca === undefined) reverifyAgents(served);
          else rotateAgents(served, "the server's certificates have changed");
        }
        if (caChanged) void this.#store?.resolveAgain();
      },
      onCrlChanged: () => {
        this.#serving?.checkCrls();
        for (const served of this.#serving?.all() ?? []) {
          const { agents, callers } = served.cluster;
          if (agents.crl === undefined) endRevokedAgents(served, this.#turns);
          if (callers.crl === undefined) void this.#callersAgain.verify(served.callers);
        }
      },
      onCallersCaChanged: () => {
        for (const { cluster, callers } of this.#serving?.all() ?? []) {
          if (cluster.callers.ca === undefined) void this.#callersAgain.verify(callers);
        }
        void this.#store?.resolveAgain();
      },
    });
    this.#flags = flags;
    this.#store =
      clusters === "" ? undefined : await ClusterStore.open(clusters, this.#log, { flags: () => flags.authorities });
    const source: ClusterSource = this.#store ?? flagCluster(this.#options);
    const serving = new Clusters({
      ...{ source, registry: this.tunnels, flags, serverId, maxAgents, drainTimeoutMs, log: this.#log },
      isOfFlags: this.#store === undefined,
      innerTls: this.#options.innerTls,
      onAdded: (served) => this.#onAdded(served),
      onChanged: (served, what) => this.#onChanged(served, what),
      onRemoved: (served) => this.#onRemoved(served),
    });
    this.#serving = serving;
    serving.start();
    for (const served of serving.all()) await this.#openUnix(served);
    this.#started = true;
    return serving;
  }

  // ── clusters that come and go ──────────────────────────────────────────────────────────────────────────────────

  #onAdded(served: ClusterRuntime): void {
    this.#agents.endUnread();
    if (this.#started) void this.#openUnix(served).catch((error) => this.#cannotOpen(served, error));
  }

  #onChanged(served: ClusterRuntime, what: ClusterChanges): void {
    this.#agents.endUnread();
    if (what.uds) {
      this.#entrances.closeUnix(served.unix);
      void this.#openUnix(served).catch((error) => this.#cannotOpen(served, error));
    }
    if (what.callers.trust || what.callers.crl) void this.#callersAgain.verify(served.callers);
    if (what.suspended && served.cluster.suspended) this.#endTunnels(served);
    else if (what.agents.trust) reverifyAgents(served);
    else {
      if (what.agents.crl) endRevokedAgents(served, this.#turns);
      if (what.agents.material) rotateAgents(served, "the certificate of its cluster has changed");
    }
  }

  /** Open connections have as long as at the end of the server. */
  #onRemoved(served: ClusterRuntime): void {
    this.#agents.endUnread();
    this.#entrances.closeUnix(served.unix);
    this.metrics.forgetCluster(served.cluster.name);
    void this.#entrances.closeOf(served.tunnels, this.#endTunnels(served), RESET_MS);
    this.#log.info({ cluster: served.cluster.name }, "cluster removed");
  }

  #endTunnels({ tunnels }: ClusterRuntime): Promise<unknown> {
    return Promise.all([...tunnels.tunnels()].map((tunnel) => tunnel.close(this.#options.drainTimeoutMs)));
  }

  #cannotOpen(served: ClusterRuntime, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#log.error({ cluster: served.cluster.name, reason }, "the unix socket of a cluster cannot be opened");
  }

  async #openUnix({ unix, cluster, isOfFlags }: ClusterRuntime): Promise<void> {
    const { uds } = cluster.callers;
    if (uds === undefined || this.#draining) return;
    const option = isOfFlags ? "--uds-name" : `${cluster.file}: callers.uds`;
    await this.#entrances.openUnix(unix, uds, option);
    this.addresses.uds ??= uds;
  }

  // ── ports ──────────────────────────────────────────────────────────────────────────────────────────────────────

  async #openForCallers(serving: Clusters): Promise<void> {
    const { serverPort, serverBindAddress, serverCert } = this.#options;
    if (!this.#isOn(serverPort, serverCert)) return;
    const common = {
      ...{ options: this.#options, metrics: this.metrics, log: this.#log },
      ...{ throttledLog: this.#throttledLog, memory: this.#memoryOfStrangers },
    };
    const { listener, address } = await openTlsPort(
      {
        ...{ name: "callers", hosts: serving.callerHosts, proxyProtocol: this.#options.serverProxyProtocol },
        ...{ port: serverPort, host: serverBindAddress, option: "--server-port" },
        hostOption: "--server-bind-address",
        keepaliveMs: this.#options.frontendKeepaliveMs,
        turnsAway: false, // kube-apiserver would not obey
        onConnection: ({ socket, host }) => this.#entrances.take(host, socket),
      },
      common,
    );
    this.#callers = listener;
    this.addresses.callers = address;
  }

  #connecting(): ConnectDeps {
    return {
      options: this.#options,
      clusters: { get: (name) => this.#serving?.get(name) },
      metrics: this.metrics,
      log: this.#log,
      throttledLog: this.#throttledLog,
      unauthenticatedMemory: this.#memoryOfStrangers,
      draining: () => this.#draining,
      files: this.#files,
    };
  }

  #handler(door: Door): FrontendHandler {
    const deps = this.#connecting();
    return {
      onConnect: (request, socket) => void connect(request, socket, door, deps),
      onRefused: (refused) =>
        this.#throttledLog.write("info", { cluster: door.cluster, ...refused }, "request refused"),
      onLeft: (left) => tellLeft({ listener: "callers", cluster: door.cluster, ...left }, deps),
      onDropped: () => this.#onDropped(door.kind === "unix" ? "unix" : "callers"),
    };
  }

  async #openForAgents({ agentHosts, plainAgentHosts }: Clusters): Promise<void> {
    const { agentPort, clusterCert, agentInsecurePort, agentInsecureTrustedCidrs } = this.#options;
    if (this.#isOn(agentPort, clusterCert)) await this.#agents.openSecure(agentHosts);
    if (this.#isOn(agentInsecurePort, agentInsecureTrustedCidrs[0] ?? ""))
      await this.#agents.openInsecure(plainAgentHosts);
    Object.assign(this.addresses, this.#agents.addresses);
  }

  #onDropped(listener: ListenerName): void {
    this.metrics.waitingDropped(listener);
    this.#throttledLog.write(
      "warn",
      { listener },
      "connection dropped: too many say nothing (--max-waiting-connections)",
    );
  }

  async #openForOperators(): Promise<void> {
    const { healthPort, healthBindAddress, healthShowsClusters, adminPort, adminBindAddress } = this.#options;
    const { registry, withoutNames } = this.metrics;
    const common = { log: this.#log, throttledLog: this.#throttledLog };
    if (this.#isOn(healthPort)) {
      const flags = { option: "--health-port", hostOption: "--health-bind-address" };
      const shows = healthShowsClusters ? "names" : "counts";
      this.#health = await startAdmin({
        ...{ ...common, ...flags, port: healthPort, host: healthBindAddress },
        metrics: healthShowsClusters ? registry : withoutNames,
        checks: () => readiness(this.#condition(), shows),
      });
      this.addresses.health = this.#health.address;
    }
    if (this.#isOn(adminPort)) {
      const flags = { option: "--admin-port", hostOption: "--admin-bind-address" };
      this.#admin = await startAdmin({
        ...{ ...common, ...flags, port: adminPort, host: adminBindAddress },
        metrics: registry,
        checks: () => readiness(this.#condition(), "names"),
        status: () => this.#status(),
        trial: (asked) => checkConnect(asked, this.#connecting()),
        allowedHosts: this.#options.adminAllowedHosts,
      });
      this.addresses.admin = this.#admin.address;
    }
  }

  async #status(): Promise<ServerStatus> {
    const roundTrips = await roundTripsOf(this.tunnels.tunnels());
    return status({
      serverId: this.#options.serverId,
      listeners: this.#shownAddresses(),
      clusters: this.#serving?.all() ?? [],
      refusals: this.metrics.refusals,
      problems: [...this.#files.problems(), ...this.#clusterFaults()],
      pool: this.#pool,
      draining: this.#draining,
      roundTrips,
    });
  }

  /** `needed`: what it cannot be without, if there is anything. */
  #isOn(port: number, needed = "nothing"): boolean {
    return port !== 0 || (this.#ephemeral && needed !== "");
  }

  #condition(): Condition {
    const unix = this.#store === undefined ? this.#entrances.unixStates() : [];
    return {
      listeners: [...unix.map((state) => ({ name: "unix socket", ...state })), ...this.#tcpListeners()],
      certificates: this.#flags?.certificates() ?? [],
      ends: this.#recentEnds(),
      clusters: this.#store && this.#recentFaults(),
      warnings: this.#recentWarnings(),
      files: this.#files.checks(),
      draining: this.#draining,
      agents: this.#sum((tunnel) => (tunnel.draining || tunnel.suspended ? 0 : 1)),
      readyNeedsAgent: this.#options.readyNeedsAgent,
      tokenReviews: this.#recentReviews(),
      readyNeedsTokenReview: this.#options.readyNeedsTokenReview,
    };
  }

  /** Certificates and CAs of the flags and of all clusters. */
  *#expiring(): Generator<Expiring> {
    yield* this.#flags?.expiring() ?? [];
    yield* this.#serving?.expiring() ?? [];
  }

  #tcpListeners(): { readonly name: string; readonly up: boolean }[] {
    const callers = this.#callers && [{ name: "callers", up: this.#callers.listening }];
    return [...(callers ?? []), ...this.#agents.states()];
  }

  /** Why some clusters are not served as their documents say; the others need this server all the same. */
  #clusterFaults(): string[] {
    if (this.#store === undefined) return [];
    return [
      ...this.#store.problems().map(({ file, sentence }) => `${file}: ${sentence}`),
      ...(this.#serving?.problems() ?? []),
      ...this.#entrances.unixStates().flatMap(({ problem }) => problem ?? []),
    ];
  }

  // ── end ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Readiness false, no new CONNECTs and agents, go-away to the agents that are there. What is open lives on. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#callers?.stopAccepting();
    this.#entrances.drain();
    this.#agents.destroyWaiting();
    for (const tunnel of this.tunnels.tunnels()) tunnel.drain(RETRY_AFTER_S * 1_000);
    // With open streams the port stays: their links may need another carrier.
    if (this.#links.size === 0) this.#agents.stopAccepting();
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
    await this.#entrances.empty(leftMs());
    await Promise.all([...this.tunnels.tunnels()].map((tunnel) => tunnel.close(leftMs())));
    this.#agents.stopAccepting();
    await this.#entrances.empty(RESET_MS);
    await this.#agents.empty(REFUSED_MS);
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
    this.#files.stop();
    this.#memoryWatch?.stop();
    this.#store?.close();
    this.#serving?.close();
    this.#flags?.close();
    this.#entrances.resetAll();
    this.#callers?.destroyAll();
    this.#agents.destroyAll();
    // Fastify only after the last carrier, since it would cut what is left.
    await Promise.all([this.#entrances.close(), this.#agents.close()]);
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
