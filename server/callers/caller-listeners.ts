import type { Duplex } from "node:stream";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import { WaitingConnections } from "../listeners/waiting-connections.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";
import type { Door } from "./authenticate.ts";
import { Frontend, type FrontendHandler, type FrontendOptions } from "./connect-reader.ts";
import { UnixListener } from "./unix-listener.ts";

export interface EntrancesDeps {
  readonly options: FrontendOptions & Pick<ServerOptions, "udsMode" | "deleteExistingUdsFile" | "listenBacklog">;
  /** Connections on TCP ports that have not said what they want; a unix socket's are apart. */
  readonly waiting: WaitingConnections;
  readonly log: Logger;
  /** What becomes of those who come through a door. */
  handler(door: Door): FrontendHandler;
}

/**
 * Where callers come in: a frontend for each door through which somebody has come, and the unix sockets of the clusters
 * that have one.
 */
export class Entrances {
  readonly #deps: EntrancesDeps;
  readonly #frontends = new Map<Door, Frontend>();
  /** Of clusters that are not served any more. */
  readonly #closed = new WeakSet<ClusterTunnels>();
  readonly #unix = new Map<UnixHost, UnixListener>();

  constructor(deps: EntrancesDeps) {
    this.#deps = deps;
  }

  take(door: Door, socket: Duplex): void {
    if (this.#closed.has(door.tunnels)) {
      socket.destroy(); // its handshake was done after its cluster had gone
      return;
    }
    let frontend = this.#frontends.get(door);
    if (frontend === undefined) {
      const { options, waiting } = this.#deps;
      const all = door.kind === "unix" ? new WaitingConnections(options.maxWaitingConnections) : waiting;
      frontend = new Frontend(door, options, all, this.#deps.handler(door));
      this.#frontends.set(door, frontend);
    }
    frontend.take(socket);
  }

  /**
   * `option`: where the path is said. Rejects with a `ConfigError` if it cannot be had now; it is tried again until
   * `closeUnix`.
   */
  async openUnix(door: UnixHost, path: string, option: string): Promise<void> {
    const { udsMode: mode, deleteExistingUdsFile: deleteExisting, listenBacklog: backlog } = this.#deps.options;
    const listener = new UnixListener({
      ...{ path, option, mode, deleteExisting, backlog },
      onSocket: (socket) => this.take(door, socket),
      log: this.#deps.log,
    });
    this.#unix.set(door, listener); // from now on it can be closed
    await listener.open();
  }

  /** No new connections on it. */
  closeUnix(door: UnixHost): void {
    void this.#unix.get(door)?.close();
    this.#unix.delete(door);
  }

  /** Can callers come to the unix sockets, and if not, why? */
  unixStates(): { readonly up: boolean; readonly problem: string | undefined }[] {
    return [...this.#unix.values()].map(({ state }) => state);
  }

  /** Nobody new; those who have asked for nothing go. */
  drain(): void {
    for (const listener of this.#unix.values()) void listener.close();
    for (const { sockets } of this.#frontends.values()) sockets.destroyWaiting();
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    await Promise.all([...this.#frontends.values()].map(({ sockets }) => sockets.empty(deadlineMs)));
  }

  /** Ends every connection so that nobody takes a cut transfer for a whole one. */
  resetAll(): void {
    for (const { sockets } of this.#frontends.values()) sockets.resetAll();
  }

  /** Resolves when the unix sockets are gone. */
  async close(): Promise<void> {
    await Promise.all([...this.#unix.values()].map((listener) => listener.close()));
  }

  /** The same for one cluster: nobody new, then `ended`, then whoever is left is reset. */
  async closeOf(tunnels: ClusterTunnels, ended: Promise<unknown>, restMs: number): Promise<void> {
    this.#closed.add(tunnels);
    const doors = [...this.#frontends].filter(([door]) => door.tunnels === tunnels);
    for (const [, { sockets }] of doors) sockets.destroyWaiting();
    await ended;
    await Promise.all(
      doors.map(async ([door, { sockets }]) => {
        await sockets.empty(restMs);
        sockets.resetAll();
        this.#frontends.delete(door);
      }),
    );
  }
}
