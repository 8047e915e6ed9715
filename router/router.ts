import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { networkOf } from "../shared/address/network.ts";
import { formatTarget } from "../shared/address/target.ts";
import { type Admin, type AdminOptions, startAdmin } from "../shared/admin/admin.ts";
import { MAX_CONNECTIONS } from "../shared/admin/connections.ts";
import { type ListenAddress, listenError } from "../shared/config/listen-address.ts";
import { type FileCounting, FileDescriptors, fileLimitWarning } from "../shared/limits/file-descriptors.ts";
import { peerOf } from "../shared/listen/incoming-connection.ts";
import { resetSocket } from "../shared/relay/reset.ts";
import { type Check, countOnly } from "../shared/runtime/check.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import { started } from "../shared/runtime/run.ts";
import { ThrottledLog } from "../shared/runtime/throttled-log.ts";
import { type BackendState, Backends } from "./backends.ts";
import { ClientConnections, ClientHellos } from "./client-connections.ts";
import { forward, type RouterContext } from "./forward.ts";
import { RouterMetrics } from "./metrics.ts";
import type { RouterOptions } from "./options.ts";
import { RouteStore } from "./routes.ts";

export interface RouterDeps {
  readonly log: Logger;
  /** Port 0 means a free port instead of "off"; for tests. */
  readonly listenEphemeral?: boolean;
  /** The count and limit of open files, if not those of this process; for tests. */
  readonly files?: FileCounting;
}

interface RouterAddresses {
  clients?: AddressInfo;
  health?: AddressInfo;
  admin?: AddressInfo;
}

/** Interval of TCP keepalive, which alone finds a dead peer of a silent connection, ms. */
const KEEP_ALIVE_MS = 30_000;
/**
 * A connection younger than this may be dropped for a new one, ms. A server behind the router allows 10 s for TLS and
 * 10 s for the request (`--handshake-timeout`, `--header-timeout`).
 */
const YOUNG_MS = 15_000;

/** Starts a router; resolves when every listener is open. Faulty routes fail the start; later they are only logged. */
export async function startRouter(options: RouterOptions, deps: RouterDeps): Promise<Router> {
  let router: Router | undefined;
  const onRead = (): void => router?.onRoutes();
  const store = await RouteStore.open({ path: options.routes, log: deps.log, onRead });
  router = new Router(options, store, deps);
  return await started(router);
}

/** A router for TLS connections. It opens none of them and holds no key. */
export class Router {
  readonly addresses: RouterAddresses = {};
  readonly metrics: RouterMetrics;
  readonly #context: RouterContext;
  readonly #ephemeral: boolean;
  readonly #server: Server;
  readonly #open: ClientConnections;
  /** The health port, and the port for operators. */
  readonly #admins: Admin[] = [];
  #draining = false;
  #closing: Promise<void> | undefined;

  constructor(options: RouterOptions, store: RouteStore, { log, listenEphemeral = false, files }: RouterDeps) {
    this.#ephemeral = listenEphemeral;
    this.#open = new ClientConnections(options.maxConnections, YOUNG_MS);
    const throttledLog = new ThrottledLog(log);
    const hellos = new ClientHellos(options.helloTimeoutMs, options.maxHellos);
    const backends = new Backends();
    backends.use(store.table);
    const metrics = new RouterMetrics({
      connections: () => this.#open.size,
      hellos: () => hellos.size,
      routes: () => store.table.routes.length,
      faults: () => store.faults.length,
      backends: () => this.#countBackends(),
    });
    this.metrics = metrics;
    const descriptors = new FileDescriptors("this router", { metrics, throttledLog }, files);
    this.#context = { options, log, throttledLog, metrics, files: descriptors, store, backends, hellos };
    this.#server = createServer({
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    this.#server.on("connection", this.#onConnection);
  }

  async start(): Promise<void> {
    const { options, log, files, store } = this.#context;
    const { port, bindAddress, healthPort, adminPort } = options;
    if (store.table.routes.length === 0) log.warn("there are no routes yet: every connection is refused");
    const operators = [healthPort, adminPort].filter((each) => each !== 0).length;
    const warning = fileLimitWarning(2 * options.maxConnections + operators * MAX_CONNECTIONS);
    if (warning !== undefined) log.warn(warning);
    this.addresses.clients = await this.#listen({
      port,
      host: bindAddress,
      option: "--port",
      hostOption: "--bind-address",
    });
    await this.#openForOperators();
    files.start();
    const at = Object.entries(this.addresses).map(([name, { address, port }]) => [
      name,
      formatTarget({ host: address, port }),
    ]);
    log.info({ routes: store.table.routes.length, ...Object.fromEntries(at) }, "router started");
  }

  async #openForOperators(): Promise<void> {
    const { healthPort, healthBindAddress, healthShowsClusters, adminPort, adminBindAddress, adminAllowedHosts } =
      this.#context.options;
    const { registry, withoutNames } = this.metrics;
    await this.#openAdmin("health", healthPort, healthBindAddress, {
      metrics: healthShowsClusters ? registry : withoutNames,
      checks: () => this.#checks(healthShowsClusters),
    });
    await this.#openAdmin("admin", adminPort, adminBindAddress, {
      metrics: registry,
      checks: () => this.#checks(true),
      status: () => this.#status(),
      allowedHosts: adminAllowedHosts,
    });
  }

  async #openAdmin(
    name: "health" | "admin",
    port: number,
    host: string,
    pages: Omit<AdminOptions, keyof ListenAddress | "log" | "throttledLog">,
  ): Promise<void> {
    if (port === 0 && !this.#ephemeral) return;
    const flags = { option: `--${name}-port`, hostOption: `--${name}-bind-address` };
    const { log, throttledLog } = this.#context;
    const admin = await startAdmin({ log, throttledLog, ...flags, port, host, ...pages });
    this.addresses[name] = admin.address;
    this.#admins.push(admin);
  }

  /** Call it when routes were read again. Open connections go on, whatever became of their routes. */
  onRoutes(): void {
    const { log, store, backends } = this.#context;
    const { table, files, faults } = store;
    backends.use(table);
    this.metrics.routesRead(faults.length > 0);
    log.info({ routes: table.routes.length, files, faults: faults.length }, "routes were read again");
  }

  #listen(at: ListenAddress): Promise<AddressInfo> {
    const server = this.#server;
    return new Promise((resolve, reject) => {
      const onError = (error: Error): void => reject(listenError(error, at));
      server.once("error", onError);
      server.listen({ port: at.port, host: at.host, backlog: this.#context.options.listenBacklog }, () => {
        server.off("error", onError);
        server.on("error", this.#onListenerError);
        resolve(server.address() as AddressInfo);
      });
    });
  }

  readonly #onListenerError = (error: Error): void => {
    this.metrics.listenerFailed();
    // Rare, because libuv does not report a shortage of descriptors; if it comes, then for each connection.
    this.#context.throttledLog.write("error", { err: error }, "a listener failed");
  };

  readonly #onConnection = (client: Socket): void => {
    client.on("error", ignore);
    const { address } = peerOf(client);
    const surplus = this.#open.enter(client, networkOf(address));
    if (surplus !== undefined) this.#drop(surplus);
    if (surplus === client) return;
    void forward(client, this.#context);
  };

  #drop(client: Socket): void {
    this.metrics.refused("full");
    const { throttledLog } = this.#context;
    throttledLog.write("warn", { remote: peerOf(client).address }, "connection dropped (--max-connections)");
    resetSocket(client);
  }

  /**
   * The checks of `/readyz`. Routes that cannot be used leave the last ones in use, so they do not fail it. Names and
   * paths are for operators; the health port may show counts only.
   */
  #checks(showsNames: boolean): Check[] {
    const { table, files, faults } = this.#context.store;
    const count = `${table.routes.length} in ${files} ${files === 1 ? "file" : "files"}`;
    const shownFaults = showsNames
      ? faults.map((fault) => `not in use: ${fault}`)
      : faults.slice(0, 1).map(() => countOnly(faults.length, "fault"));
    return [
      { name: "listeners", ok: this.#server.listening },
      { name: "routes", ok: true, hasFaults: faults.length > 0, detail: [count, ...shownFaults].join("; ") },
      ...this.#context.files.checks(),
      { name: "not-draining", ok: !this.#draining },
    ];
  }

  /** The content of `/status`. */
  #status(): unknown {
    const now = performance.now();
    const { table, faults } = this.#context.store;
    return {
      kind: "router",
      draining: this.#draining,
      connections: this.#open.size,
      faults,
      routes: table.routes.map(({ name, sni, to, sendProxy }) => ({
        route: name,
        sni,
        backends: to.length,
        sendProxy,
      })),
      backends: [...this.#context.backends].map((backend) => ({
        backend: backend.address,
        state: backend.state(now),
        connections: backend.connections,
      })),
    };
  }

  #countBackends(): Record<BackendState, number> {
    const now = performance.now();
    const counts = { healthy: 0, avoided: 0, untried: 0 };
    for (const backend of this.#context.backends) counts[backend.state(now)]++;
    return counts;
  }

  /** Accepts no more connections and ends those whose ClientHello is not complete. The others go on. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#context.store.close();
    if (this.#server.listening) this.#server.close();
    this.#context.hellos.destroyAll();
  }

  /** Drains, waits for the connections up to `--drain-timeout`, then releases everything. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.drain();
    await this.#open.empty(this.#context.options.drainTimeoutMs);
    await this.#release();
  }

  /** Ends everything now, also while a `close` waits. */
  destroy(_reason: Error): void {
    this.drain();
    this.#open.stopWaiting();
    void this.#release();
  }

  async #release(): Promise<void> {
    this.#context.files.stop();
    // A reset, so that a transfer that was cut is not taken for a complete one. The splices pass it on to the backends.
    for (const client of this.#open) resetSocket(client);
    // The health port closes last; until then it reports "not ready".
    await Promise.all(this.#admins.map((admin) => admin.close()));
  }
}

function ignore(): void {}
