import { unlink } from "node:fs/promises";
import type { AddressInfo, Server, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { formatTarget, parseTarget } from "../shared/address/target.ts";
import { type Admin, startAdmin } from "../shared/admin/admin.ts";
import { listenError } from "../shared/config/listen-address.ts";
import { ConfigError } from "../shared/config/options.ts";
import { WatchedFiles } from "../shared/documents/watched-files.ts";
import type { Check } from "../shared/runtime/check.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import { started } from "../shared/runtime/run.ts";
import { ThrottledLog } from "../shared/runtime/throttled-log.ts";
import { loadClientTls, TlsFileError, type TlsMaterial } from "../shared/tls/tls-material.ts";
import type { SidecarContext } from "./context.ts";
import { Dialer } from "./dialer.ts";
import { SidecarMetrics } from "./metrics.ts";
import type { SidecarOptions } from "./options.ts";
import { Upstream } from "./upstream.ts";
import { UpstreamServer } from "./upstream-server.ts";

/** The protocol that clients speak. Its server does not listen yet. */
export interface LocalProtocol {
  readonly server: Server;
  /** Ends connections that carry nothing. */
  closeIdle?(): void;
  close?(): void;
}

export interface SidecarDeps {
  readonly log: Logger;
  /** Port 0 means a free port instead of "off"; for tests. */
  readonly listenEphemeral?: boolean;
}

interface SidecarAddresses {
  clients?: AddressInfo;
  uds?: string;
  health?: AddressInfo;
}

/** Starts a sidecar; resolves when every listener is open. */
export async function startSidecar(
  options: SidecarOptions,
  deps: SidecarDeps,
  protocol: (context: SidecarContext) => LocalProtocol,
): Promise<Sidecar> {
  return started(new Sidecar(options, deps, protocol));
}

/** A proxy for the containers of its pod: a local protocol in front of the tunnels of culvert servers. */
export class Sidecar {
  readonly addresses: SidecarAddresses = {};
  readonly #context: SidecarContext;
  readonly #ephemeral: boolean;
  readonly #tls: WatchedFiles<Partial<TlsMaterial>>;
  readonly #upstream: Upstream;
  readonly #protocol: LocalProtocol;
  /** The second listener: a server listens at one address. */
  readonly #unixProtocol: LocalProtocol | undefined;
  readonly #clients = new Set<Socket>();
  #admin: Admin | undefined;
  #draining = false;
  #closing: Promise<void> | undefined;
  #waiting: AbortController | undefined;

  constructor(
    options: SidecarOptions,
    { log, listenEphemeral = false }: SidecarDeps,
    protocol: (context: SidecarContext) => LocalProtocol,
  ) {
    this.#ephemeral = listenEphemeral;
    const throttledLog = new ThrottledLog(log);
    this.#tls = watchedTls(options, log, () => this.#upstream.renew());
    const tls = () => this.#tls.content;
    const servers = options.server.map((address) => new UpstreamServer(parseTarget(address), tls));
    const metrics = new SidecarMetrics({
      connections: () => this.#clients.size,
      sessions: () => this.#upstream.sessions,
    });
    this.#upstream = new Upstream(servers, {
      onFailed: (server, { message }) => {
        metrics.serverFailed();
        throttledLog.write("warn", { server, reason: message }, "a server could not serve a dial");
      },
    });
    this.#context = { options, log, throttledLog, metrics, dialer: new Dialer(options, this.#upstream) };
    this.#protocol = protocol(this.#context);
    this.#unixProtocol = options.udsName === "" ? undefined : protocol(this.#context);
    for (const { server } of this.#protocols) server.on("connection", this.#onConnection);
  }

  get metrics(): SidecarMetrics {
    return this.#context.metrics;
  }

  /** Whether there is an HTTP/2 session to any server. */
  get hasSession(): boolean {
    return this.#upstream.sessions > 0;
  }

  get #protocols(): LocalProtocol[] {
    return [this.#protocol, ...(this.#unixProtocol === undefined ? [] : [this.#unixProtocol])];
  }

  async start(): Promise<void> {
    const { options, log } = this.#context;
    const { port, bindAddress, udsName, healthPort, healthBindAddress } = options;
    if (port !== 0 || this.#ephemeral) {
      const at = { option: "--port", hostOption: "--bind-address", port, host: bindAddress };
      await listen(this.#protocol.server, { port, host: bindAddress }, (error) => listenError(error, at));
      this.addresses.clients = this.#protocol.server.address() as AddressInfo;
    }
    if (this.#unixProtocol !== undefined) {
      await unlink(udsName).catch(() => {});
      const wrong = (error: Error): Error =>
        new ConfigError(`--uds-name: cannot listen on ${udsName}: ${error.message}`);
      await listen(this.#unixProtocol.server, { path: udsName }, wrong);
      this.addresses.uds = udsName;
    }
    if (healthPort !== 0 || this.#ephemeral) await this.#openHealth(healthPort, healthBindAddress);
    this.#upstream.warm();
    const { clients, health } = this.addresses;
    const shown = (at: AddressInfo | undefined) => at && formatTarget({ host: at.address, port: at.port });
    const { server } = options;
    log.info({ clients: shown(clients), uds: udsName || undefined, health: shown(health), server }, "sidecar started");
  }

  async #openHealth(port: number, host: string): Promise<void> {
    const { log, throttledLog, metrics } = this.#context;
    const flags = { option: "--health-port", hostOption: "--health-bind-address" };
    const pages = { metrics: metrics.registry, checks: () => this.#checks() };
    this.#admin = await startAdmin({ log, throttledLog, ...flags, port, host, ...pages });
    this.addresses.health = this.#admin.address;
  }

  readonly #onConnection = (client: Socket): void => {
    client.on("error", ignore);
    if (this.#clients.size >= this.#context.options.maxConnections) {
      this.#context.metrics.clientRefused();
      this.#context.throttledLog.write("warn", {}, "connection of a client closed (--max-connections)");
      client.destroy();
      return;
    }
    this.#clients.add(client);
    client.once("close", () => {
      this.#clients.delete(client);
      if (this.#clients.size === 0) this.#waiting?.abort();
    });
  };

  /** A pod whose servers are away can do nothing about it: that is a fault, and leaves it ready. */
  #checks(): Check[] {
    return [
      { name: "listeners", ok: this.#protocols.some(({ server }) => server.listening) },
      { name: "servers", ok: true, hasFaults: !this.#upstream.isReachable },
      { name: "certificate", ok: true, hasFaults: this.#tls.problem !== undefined },
      { name: "not-draining", ok: !this.#draining },
    ];
  }

  /** Accepts no more connections. Open ones go on. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#tls.close();
    for (const protocol of this.#protocols) {
      if (protocol.server.listening) protocol.server.close();
      protocol.closeIdle?.();
    }
  }

  /** Drains, waits for the connections up to `--drain-timeout`, then releases everything. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.drain();
    if (this.#clients.size > 0) {
      this.#waiting = new AbortController();
      await sleep(this.#context.options.drainTimeoutMs, undefined, { signal: this.#waiting.signal }).catch(ignore);
    }
    await this.#release();
  }

  /** Ends everything now, also while a `close` waits. */
  destroy(_reason: Error): void {
    this.drain();
    this.#waiting?.abort();
    void this.#release();
  }

  async #release(): Promise<void> {
    for (const client of this.#clients) client.destroy();
    for (const protocol of this.#protocols) protocol.close?.();
    this.#upstream.destroy();
    await this.#admin?.close();
  }
}

function watchedTls(options: SidecarOptions, log: Logger, onRenewed: () => void): WatchedFiles<Partial<TlsMaterial>> {
  const { caCert, cert, key } = options;
  const load = (): Partial<TlsMaterial> => loadClientTls({ caFile: caCert, certFile: cert, keyFile: key });
  const paths = [cert, key, caCert] as const;
  const words = { renewed: "certificate files were read again", unusable: "certificate files cannot be used" };
  try {
    return new WatchedFiles({ paths: [...paths], load, ...words }, { log, onRenewed });
  } catch (error) {
    throw error instanceof TlsFileError ? new ConfigError(`${error.message}.`, { cause: error }) : error;
  }
}

function listen(server: Server, at: object, wrong: (error: Error) => Error): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => reject(wrong(error));
    server.once("error", onError);
    server.listen(at, () => {
      server.off("error", onError);
      server.on("error", ignore);
      resolve();
    });
  });
}

function ignore(): void {}
