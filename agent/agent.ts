import type { AddressInfo } from "node:net";
import { type Admin, startAdmin } from "../shared/admin/admin.ts";
import { version } from "../shared/basics/program.ts";
import { untilAborted } from "../shared/basics/promises.ts";
import { checkPort, type ListenAddress } from "../shared/config/listen-address.ts";
import { ConfigError } from "../shared/config/options.ts";
import type { Environment } from "../shared/dial/proxy-route.ts";
import { type ContentWatch, watchFiles } from "../shared/documents/watched-files.ts";
import { FileDescriptors } from "../shared/limits/file-descriptors.ts";
import { controlGroups, MemoryWatch } from "../shared/limits/memory-limit.ts";
import { MemoryPool } from "../shared/limits/memory-pool.ts";
import { NAMES } from "../shared/names/lookup.ts";
import { liveLinks } from "../shared/runtime/common-metrics.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import { started } from "../shared/runtime/run.ts";
import { ConditionLog, ThrottledLog } from "../shared/runtime/throttled-log.ts";
import { AuthorityEnds, type Expiring, expiryConditions, expiryWarnings } from "../shared/tls/expiry.ts";
import { startTracing } from "../shared/tracing/start-tracing.ts";
import type { Tracing } from "../shared/tracing/tracing.ts";
import { DESTINATION_KIND } from "../shared/wire/destination-heads.ts";
import { agreedFeatures } from "../shared/wire/handshake.ts";
import type { Session } from "../shared/yamux/session.ts";
import type { AgentContext } from "./context/context.ts";
import { AgentMetrics } from "./context/metrics.ts";
import type { AgentOptions } from "./context/options.ts";
import type { NameResolver } from "./context/servers.ts";
import { NodeListeners } from "./destinations/node-listeners.ts";
import type { ServerTunnel } from "./destinations/open-destination.ts";
import { credentialCheck, readiness, status } from "./status.ts";
import { TargetPolicy } from "./streams/policy.ts";
import { serve, TargetDials } from "./streams/serve.ts";
import { attempt, helloOf } from "./uplink/attempt.ts";
import { expiringOf, KeptCredentials, pathsOf } from "./uplink/credentials.ts";
import { AgentRoutes } from "./uplink/proxy-route.ts";
import type { SlotOwner } from "./uplink/slot.ts";
import { UplinkSet } from "./uplink/uplink-set.ts";

export interface AgentDeps {
  readonly log: Logger;
  /** Port 0 of the health and admin listeners means a free port, not "off". */
  readonly listenEphemeral?: boolean;
  /** Holds HTTPS_PROXY and the like; absent: the environment of the process. */
  readonly env?: Environment;
  /** Absent: the resolver of the operating system. */
  readonly resolver?: NameResolver;
}

/** How long the health port waits for the first tunnel, ms: loading its modules would delay the handshakes. */
const TUNNEL_FIRST_MS = 250;

/** Starts an agent, which dials its servers until it is closed. The start does not wait for a connection. */
export async function startAgent(options: AgentOptions, deps: AgentDeps): Promise<Agent> {
  return await started(new Agent(options, deps));
}

/** An agent process: owns its uplinks, and serves the streams that they bring. */
export class Agent implements AsyncDisposable {
  readonly metrics = new AgentMetrics();
  readonly #context: AgentContext;
  readonly #listenEphemeral: boolean;
  readonly #dials: TargetDials;
  readonly #pool: MemoryPool;
  #memoryWatch: MemoryWatch | undefined;
  readonly #credentials: KeptCredentials;
  readonly #authorities = new AuthorityEnds();
  #expiryLog: ConditionLog | undefined;
  readonly #uplinks: UplinkSet;
  readonly #node: NodeListeners;
  #health: Admin | undefined;
  #admin: Admin | undefined;
  #credentialWatch: ContentWatch | undefined;
  #tracing: Tracing | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: AgentOptions, deps: AgentDeps) {
    const { log, listenEphemeral = false, env = process.env, resolver = NAMES } = deps;
    const { metrics } = this;
    this.#listenEphemeral = listenEphemeral;
    this.#pool = new MemoryPool(options.memoryLimit);
    metrics.memory.watch(this.#pool);
    const throttledLog = new ThrottledLog(log);
    const context: AgentContext = {
      options,
      log,
      throttledLog,
      metrics,
      memory: this.#pool.share(""),
      files: new FileDescriptors("the agent", { metrics, throttledLog }),
      resolver,
      retry: { baseMs: options.syncIntervalMs, capMs: options.syncIntervalCapMs },
      tracing: () => this.#tracing,
      onStream: (stream) => void serve(stream, context, this.#dials),
    };
    this.#context = context;
    const policy = new TargetPolicy({
      allow: options.allowTarget,
      deny: options.denyTarget,
      allowLoopback: options.allowLoopback,
      ownListeners: () => [...Object.values(this.addresses), ...this.#node.addresses],
    });
    this.#dials = new TargetDials(context, policy);
    this.#credentials = new KeptCredentials(options, log);
    metrics.expiry.watch(() => this.#expiring());
    const hello = helloOf(options, `culvert/${version()}`);
    const routes = new AgentRoutes(options, env, log);
    const dial: SlotOwner["dial"] = ({ endpoints: { location: server, name }, address, path }, owner, signal) => {
      const route = routes.to(server, name, address);
      return attempt({ ...context, credentials: this.#credentials, hello, server, route, path }, owner, signal);
    };
    this.#uplinks = new UplinkSet(context, (location, signal) => routes.isDirect(location, signal), dial);
    this.#node = new NodeListeners(context, () => [...this.#serverTunnels()]);
    metrics.links.watch(() => liveLinks(this.#links()));
    metrics.watch({
      uplinks: () => this.#uplinks.uplinks,
      wanted: () => this.#uplinks.wanted,
      servers: () => this.#uplinks.servers,
      pendingDials: () => this.#dials.pending,
      bufferedBytes: () => this.#sum((session) => session.bufferedBytes),
      resetForMemory: () => this.#sum((session) => session.resetForMemory),
    });
  }

  /** The addresses of the open listeners. */
  get addresses(): { readonly health?: AddressInfo; readonly admin?: AddressInfo } {
    return {
      ...(this.#health === undefined ? {} : { health: this.#health.address }),
      ...(this.#admin === undefined ? {} : { admin: this.#admin.address }),
    };
  }

  get connected(): boolean {
    return this.#uplinks.connected;
  }

  /** Streams that are open now. */
  get streamCount(): number {
    return this.#sum((session) => session.streamCount);
  }

  async whenConnected(): Promise<void> {
    await this.#uplinks.whenConnected();
  }

  /** Faults that only an operator can correct fail the start before any server has seen this agent. */
  async start(): Promise<void> {
    const { options, log, throttledLog, files } = this.#context;
    this.#checkCredentials();
    this.#expiryLog = new ConditionLog(log, () => expiryConditions(this.#expiring(), new Date()));
    this.#expiryLog.check();
    const { health, admin } = listeners(options);
    // The listeners come later, or they would hold up the first tunnel. A port that cannot be opened is found out now:
    // then, a server would have this agent already.
    await Promise.all([health, admin].filter(({ port }) => port !== 0).map(checkPort));
    await this.#node.open();
    this.#tracing = await startTracing(options, { name: "culvert-agent", id: options.agentId }, log);
    this.metrics.traces.watch(() => this.#tracing);
    this.#watchCredentials();
    files.start();
    const groups = controlGroups("/");
    if (groups !== undefined) this.#memoryWatch = new MemoryWatch(groups, this.#pool);
    this.#uplinks.start();
    await untilAborted(this.whenConnected(), AbortSignal.timeout(TUNNEL_FIRST_MS)).catch(() => {});
    const common = {
      metrics: this.metrics.registry,
      log,
      throttledLog,
      checks: () => [
        ...readiness(this.#uplinks, options.readiness),
        credentialCheck(expiryWarnings(this.#expiring(), new Date()), this.#credentials.problem),
        ...files.checks(),
      ],
    };
    if (this.#isOn(health.port)) this.#health = await startAdmin({ ...common, ...health });
    if (this.#isOn(admin.port)) {
      const show = () => status(options.agentId, this.#uplinks, this.#dials.pending, this.#pool.report());
      this.#admin = await startAdmin({
        ...common,
        ...admin,
        status: show,
        allowedHosts: options.adminAllowedHosts,
      });
    }
  }

  /** A file that cannot work fails the start. An expired certificate does not, because it may be renewed any time. */
  #checkCredentials(): void {
    try {
      this.#credentials.current();
    } catch (error) {
      throw new ConfigError([`${(error as Error).message}.`], { cause: error });
    }
  }

  /**
   * Each attempt reads the files anew, and connections that were opened with the old ones are replaced. Files that
   * cannot be used are read again later: a certificate may become valid.
   */
  #watchCredentials(): void {
    this.#credentialWatch = watchFiles(pathsOf(this.#context.options), () => {
      const isUsable = this.#credentials.refresh();
      this.#expiryLog?.check();
      if (!isUsable) return false;
      this.#context.log.info("credentials have changed: connections are replaced");
      this.#uplinks.changeCarriers();
      return true;
    });
  }

  /** Sends go-away to the servers: no new streams here, and open ones go on. */
  drain(): void {
    this.#node.drain();
    this.#uplinks.drain();
  }

  /** Drains, waits for the streams up to `--drain-timeout`, then ends links and listeners. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#node.drain();
    // The health port goes last: until then it says "not ready".
    await this.#uplinks.close(this.#context.options.drainTimeoutMs);
    await this.#closeListeners();
  }

  /** Closes everything now. */
  destroy(reason: Error): void {
    this.#uplinks.destroy(reason);
    this.#closing ??= this.#closeListeners();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #closeListeners(): Promise<void> {
    this.#credentialWatch?.close();
    this.#expiryLog?.close();
    this.#context.files.stop();
    this.#memoryWatch?.stop();
    await Promise.all([this.#node.close(), this.#health?.close(), this.#admin?.close(), this.#tracing?.close()]);
  }

  /** The certificate and the token of the agent now, and the CAs by which it verifies servers. */
  #expiring(): Iterable<Expiring> {
    return expiringOf(this.#context.options, this.#credentials.held ?? {}, this.#authorities);
  }

  #isOn(port: number): boolean {
    return port !== 0 || this.#listenEphemeral;
  }

  #sum(count: (session: Session) => number): number {
    let sum = 0;
    for (const uplink of this.#uplinks.uplinks) for (const { session } of uplink.connections()) sum += count(session);
    return sum;
  }

  /** The tunnels to servers that take connections of this node. */
  *#serverTunnels(): Generator<ServerTunnel> {
    for (const { state } of this.#uplinks.uplinks) {
      if (state.state !== "connected" && state.state !== "suspended") continue;
      const { session, link, welcome } = state.connection;
      const { serverId, features } = welcome;
      if (agreedFeatures(features).has(DESTINATION_KIND)) yield { serverId, session, link };
    }
  }

  *#links(): Generator<{ readonly suspended: boolean; readonly replayBytes: number }> {
    for (const uplink of this.#uplinks.uplinks) {
      for (const { link } of uplink.connections())
        yield { suspended: link.suspended, replayBytes: link.unacknowledged };
    }
  }
}

/** The addresses of the health and admin listeners, with the options that set them. */
function listeners(options: AgentOptions): { readonly health: ListenAddress; readonly admin: ListenAddress } {
  const { healthServerPort, healthServerHost, adminServerPort, adminBindAddress } = options;
  return {
    health: {
      port: healthServerPort,
      host: healthServerHost,
      option: "--health-server-port",
      hostOption: "--health-server-host",
    },
    admin: {
      port: adminServerPort,
      host: adminBindAddress,
      option: "--admin-server-port",
      hostOption: "--admin-bind-address",
    },
  };
}
