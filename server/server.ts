import type { AddressInfo } from "node:net";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { formatTarget } from "../shared/address/target.ts";
import { ConfigError } from "../shared/config/options.ts";
import { fileLimitWarning } from "../shared/limits/file-descriptors.ts";
import { controlGroups, MemoryWatch } from "../shared/limits/memory-limit.ts";
import { liveLinks } from "../shared/runtime/common-metrics.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import { started } from "../shared/runtime/run.ts";
import { startTracing } from "../shared/tracing/start-tracing.ts";
import type { Tracing } from "../shared/tracing/tracing.ts";
import { AgentPorts } from "./agents/agent-ports.ts";
import { RETRY_AFTER_S } from "./agents/refusal.ts";
import type { ServeHttp2 } from "./agents/upgrade-port.ts";
import type { AuditTrail } from "./audit/audit-trail.ts";
import { CallerListeners } from "./callers/caller-listeners.ts";
import type { Clusters } from "./cluster-runtime/clusters.ts";
import { ClusterUpdates, RESET_MS } from "./cluster-updates.ts";
import { filesNeeded } from "./listeners/file-need.ts";
import { WaitingConnections } from "./listeners/port-connections.ts";
import type { ServerMetrics } from "./metrics/server-metrics.ts";
import { OperatorPorts } from "./operators/operator-ports.ts";
import type { ServerView } from "./operators/server-view.ts";
import type { ServerOptions } from "./options/options.ts";
import { OtherServers } from "./other-servers.ts";
import type { PeersSetup } from "./peers/peers.ts";
import type { ReplicaCount } from "./replicas/replica-count.ts";
import { countServers, type ServerCount } from "./replicas/server-count.ts";
import type { Registry } from "./tunnels/cluster-tunnels.ts";
import { createContext, type ServerContext } from "./tunnels/context.ts";
import type { LinkOwners, TakeCarried } from "./tunnels/links.ts";
import { isOwnPort } from "./tunnels/own-port.ts";

export interface ServerDeps {
  readonly log: Logger;
  /**
   * For tests: port 0 means a free port, not "off". TLS ports are then on if they have a certificate, the port in clear
   * if it trusts a network.
   */
  readonly listenEphemeral?: boolean;
  /** For tests: the directory in place of that of `--directory`. */
  readonly openDirectory?: PeersSetup["openDirectory"];
  /** For tests: the way to the other servers, in place of links to those that the directory names. */
  readonly owners?: LinkOwners;
}

export interface ServerAddresses {
  uds?: string;
  callers?: AddressInfo;
  http?: AddressInfo;
  agents?: AddressInfo;
  "agents-insecure"?: AddressInfo;
  health?: AddressInfo;
  admin?: AddressInfo;
  peers?: AddressInfo;
}

/**
 * How long callers that were accepted before the shutdown may take for handshake and request, ms. Real ones take
 * milliseconds.
 */
const LAST_REQUESTS_MS = 300;
/**
 * How long refused agents may take to read why, ms. Agents with a tunnel had their time when it closed, and an idle
 * server has to end within a second, even if peers are frozen.
 */
const REFUSED_MS = 300;

/** The code for konnectivity-agents is loaded when the first one comes. */
const serveKonnectivityAgent: ServeHttp2 = async (...connection) => {
  const { serveAgent } = await import("./konnectivity-agents/serve-agent.ts");
  if (!connection[0].socket.destroyed) serveAgent(...connection);
};

/** The audit trail is loaded only where there is one. Rejects with a `ConfigError`. */
async function openAudit({ options, metrics, log }: ServerContext): Promise<AuditTrail> {
  const { AuditTrail } = await import("./audit/audit-trail.ts");
  const { auditLog, auditRequired: required, serverId } = options;
  try {
    return new AuditTrail(auditLog, { serverId, required, log, lost: metrics.auditLost });
  } catch (error) {
    throw new ConfigError(`--audit-log: ${(error as Error).message}`, { cause: error });
  }
}

/** Starts a server; resolves when every listener is open. */
export async function startServer(options: ServerOptions, deps: ServerDeps): Promise<Server> {
  return await started(new Server(options, deps));
}

/**
 * A server: composes its parts, opens the listeners for callers, agents and operators, and closes everything step by
 * step.
 */
export class Server implements AsyncDisposable {
  readonly addresses: ServerAddresses = {};
  readonly metrics: ServerMetrics;
  /** The clusters of this server, and their tunnels. */
  readonly tunnels: Registry;
  /** How many servers there are; whatever counts them sets it. */
  readonly servers: ServerCount;
  readonly #context: ServerContext;
  readonly #ephemeral: boolean;
  readonly #others: OtherServers;
  readonly #callers: CallerListeners;
  readonly #agents: AgentPorts;
  readonly #served: ClusterUpdates;
  readonly #operators: OperatorPorts;
  readonly #destroyed = new AbortController();
  #memoryWatch: MemoryWatch | undefined;
  #replicas: ReplicaCount | undefined;
  #audit: AuditTrail | undefined;
  #tracing: Tracing | undefined;
  #draining = false;
  #closing: Promise<void> | undefined;
  #releasing: Promise<void> | undefined;

  constructor(options: ServerOptions, { log, listenEphemeral = false, openDirectory, owners }: ServerDeps) {
    const context = createContext(options, log, {
      clusters: {
        get: (name) => this.#served.clusters?.get(name),
        reachedBy: (callers, target) => this.#served.clusters?.reachedBy(callers, target),
      },
      draining: () => this.#draining,
      leadsBack: (dialled, remote) => {
        const { callers, http } = this.addresses;
        return [callers, http].some((port) => port !== undefined && isOwnPort(dialled, remote, port));
      },
      listeners: () => Object.values(this.addresses).filter((address) => typeof address !== "string"),
      audit: () => this.#audit,
      tracing: () => this.#tracing,
      peers: () => (options.directory.length > 0 ? this.#others.peers : undefined),
    });
    const waiting = new WaitingConnections(options.maxWaitingConnections);
    this.#context = context;
    this.metrics = context.metrics;
    this.tunnels = context.tunnels;
    this.servers = context.servers;
    this.#ephemeral = listenEphemeral;
    const crls = () => this.#served.crls;
    this.#others = new OtherServers({ waiting, crls, takeCarried: this.takeCarried, openDirectory }, context);
    this.#callers = new CallerListeners(waiting, context);
    const agentsOf = (cluster: string) => this.#served.clusters?.get(cluster)?.agents;
    this.#agents = new AgentPorts(
      { waiting, owners: owners ?? this.#others.owners, serveHttp2: serveKonnectivityAgent, agentsOf },
      context,
    );
    const onUnixOpened = (path: string) => {
      this.addresses.uds ??= path;
    };
    const ports = { callers: this.#callers, others: this.#others, onUnixOpened };
    this.#served = new ClusterUpdates(ports, context);
    this.#operators = new OperatorPorts(this.#createView(), context);
    this.#watchWithMetrics();
  }

  #createView(): ServerView {
    return {
      served: this.#served,
      unixListeners: () => this.#callers.unixStates(),
      tcpListeners: () => this.#tcpListeners(),
      shownAddresses: () => this.#shownAddresses(),
      ending: () => this.#draining || this.#closing !== undefined,
      others: this.#others,
      replicas: () => this.#replicas,
    };
  }

  #watchWithMetrics(): void {
    const { metrics, tunnels, pool } = this.#context;
    metrics.memory.watch(pool);
    metrics.links.watch(() => liveLinks(tunnels.tunnels()));
    metrics.live.watch(() => tunnels.clusters.values());
    metrics.expiry.watch(() => this.#operators.expiring());
    const failing = () => this.#replicas?.fault !== undefined;
    metrics.replicas.watch({ servers: () => this.servers.value, failing });
    metrics.watchClusters({
      figuresOf: (cluster) => this.#served.clusters?.get(cluster)?.figures,
      faults: () => this.#operators.clusterFaults(),
      tokenReviews: () => this.#served.clusters?.tokenReviews() ?? [],
    });
  }

  // ── start ──────────────────────────────────────────────────────────────────────────────────────────────────────

  async start(): Promise<void> {
    const { options, log, servers, files, pool } = this.#context;
    const { serverId } = options;
    if (options.auditLog !== "") this.#audit = await openAudit(this.#context);
    this.#tracing = await startTracing(options, { name: "culvert-server", id: serverId }, log);
    this.#context.metrics.traces.watch(() => this.#tracing);
    const clusters = await this.#served.start();
    await this.#openForCallers(clusters);
    await this.#agents.openCarried();
    Object.assign(this.addresses, await this.#others.open());
    await this.#openForAgents(clusters);
    this.#replicas = await countServers(options, servers, log);
    await this.#operators.open((port) => this.#isOn(port));
    Object.assign(this.addresses, this.#operators.addresses);
    const listeners = {
      tcpPorts: this.#tcpListeners().length,
      unixSockets: this.#callers.unixStates().length,
      operatorPorts: this.#operators.size,
    };
    const warning = fileLimitWarning(filesNeeded(options, listeners));
    if (warning !== undefined) log.warn(warning);
    files.start();
    const groups = controlGroups("/");
    if (groups !== undefined) this.#memoryWatch = new MemoryWatch(groups, pool);
    const count = this.#served.store?.clusters.size;
    log.info({ serverId, clusters: count, ...this.#shownAddresses() }, "server started");
  }

  async #openForCallers(clusters: Clusters): Promise<void> {
    const { serverPort, serverCert, httpPort } = this.#context.options;
    if (this.#isOn(serverPort, serverCert)) this.addresses.callers = await this.#callers.openPort(clusters.callerHosts);
    if (httpPort !== 0) this.addresses.http = await this.#callers.openHttp(clusters);
  }

  async #openForAgents({ agentHosts, plainAgentHosts }: Clusters): Promise<void> {
    const { agentPort, clusterCert, agentInsecurePort, agentInsecureTrustedCidrs } = this.#context.options;
    if (this.#isOn(agentPort, clusterCert)) await this.#agents.openSecure(agentHosts);
    if (this.#isOn(agentInsecurePort, agentInsecureTrustedCidrs[0] ?? "")) {
      await this.#agents.openInsecure(plainAgentHosts);
    }
    Object.assign(this.addresses, this.#agents.addresses);
  }

  /** Takes a connection that another server carries here. */
  readonly takeCarried: TakeCarried = (...carried) => this.#agents.takeCarried(...carried);

  /** `needed`: an option without which the port cannot be on; empty if it is not given. */
  #isOn(port: number, needed = "nothing"): boolean {
    return port !== 0 || (this.#ephemeral && needed !== "");
  }

  #tcpListeners(): { readonly name: string; readonly up: boolean }[] {
    return [...this.#callers.portStates(), ...this.#agents.states(), ...this.#others.listeners()];
  }

  #shownAddresses(): Record<string, string> {
    const entries = Object.entries(this.addresses).map(([name, address]) => [
      name,
      typeof address === "string" ? address : formatTarget({ host: address.address, port: address.port }),
    ]);
    return Object.fromEntries(entries);
  }

  // ── end ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Is not ready any more, takes no new CONNECTs and agents, and sends go-away to the agents. Open connections go on.
   */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    void this.#replicas?.leave();
    this.#callers.drain();
    this.#others.peers?.drain();
    this.#agents.destroyWaiting();
    for (const tunnel of this.tunnels.tunnels()) tunnel.drain(RETRY_AFTER_S * 1_000);
    // While there are links the ports stay open: a link may need another carrier.
    if (this.#context.links.size === 0) this.#agents.stopAccepting();
  }

  /** Drains, waits for the connections up to `--drain-timeout`, then releases everything. */
  close(): Promise<void> {
    this.#closing ??= this.#releasing ?? this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (!this.#draining) await this.#serveLastRequests();
    const deadline = performance.now() + this.#context.options.drainTimeoutMs;
    const leftMs = () => Math.max(0, deadline - performance.now());
    this.drain();
    // Callers first: the last bytes of a stream that has ended may still be on their way to a slow caller.
    await Promise.all([this.#callers.empty(leftMs()), this.#others.peers?.emptied(leftMs())]);
    await Promise.all([...this.tunnels.tunnels()].map((tunnel) => tunnel.close(leftMs())));
    this.#agents.stopAccepting();
    await Promise.all([this.#callers.empty(RESET_MS), this.#others.peers?.close(RESET_MS)]);
    await this.#agents.empty(REFUSED_MS);
    await this.#release();
  }

  /**
   * Readiness goes first, then the ports for callers, and last the tunnels: balancers still send callers until they
   * have noticed, and those that were accepted get their answer.
   */
  async #serveLastRequests(): Promise<void> {
    const { shutdownDelayMs } = this.#context.options;
    if (shutdownDelayMs > 0) await this.#unlessDestroyed(shutdownDelayMs);
    await nextTurn(); // those that the kernel holds are accepted first
    this.#callers.stopAccepting({ mayFinish: true });
    if (this.#callers.waiting > 0) await this.#unlessDestroyed(LAST_REQUESTS_MS);
  }

  async #unlessDestroyed(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#destroyed.signal }).catch(() => {});
  }

  /** Ends everything now, also while a `close` waits. */
  destroy(reason: Error): void {
    this.#draining = true;
    this.#destroyed.abort();
    for (const tunnel of this.tunnels.tunnels()) tunnel.destroy(reason);
    void this.#release();
  }

  #release(): Promise<void> {
    this.#releasing ??= this.#releaseAll();
    return this.#releasing;
  }

  async #releaseAll(): Promise<void> {
    this.#context.files.stop();
    this.#memoryWatch?.stop();
    this.#served.close();
    const left = this.#replicas?.close();
    this.#callers.resetAll();
    this.#agents.destroyAll();
    await Promise.all([this.#callers.close(), left, this.#others.peers?.destroy(new Error("this server has ended"))]);
    // The health port closes last: until then it says "not ready".
    await this.#operators.close();
    await this.#audit?.close();
    await this.#tracing?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
