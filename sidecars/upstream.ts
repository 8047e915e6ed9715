import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../shared/address/target.ts";
import { Refusal, serverAway } from "./refusal.ts";
import type { UpstreamServer } from "./upstream-server.ts";

/** How long a server that was away is asked after all others, ms. */
const AVOIDED_MS = 5_000;

export interface UpstreamEvents {
  /** A server was away, or had no agent. */
  onFailed(server: string, refusal: Refusal): void;
}

/** The servers, in the order in which they are given. The next one is asked when one is away or has no agent. */
export class Upstream {
  readonly #servers: readonly UpstreamServer[];
  readonly #events: UpstreamEvents;
  readonly #avoidedUntil = new Map<UpstreamServer, number>();

  constructor(servers: readonly UpstreamServer[], events: UpstreamEvents) {
    this.#servers = servers;
    this.#events = events;
  }

  get sessions(): number {
    return this.#servers.filter(({ hasSession }) => hasSession).length;
  }

  /** Whether any server has answered when it was asked last. */
  get isReachable(): boolean {
    return this.#avoidedUntil.size < this.#servers.length;
  }

  /** A tunnel to the target. Nothing is sent on it before this resolves. Rejects as `UpstreamServer.open` does. */
  async open(target: Target, signal: AbortSignal): Promise<Duplex> {
    const authority = formatTarget(target);
    let last: Refusal | undefined;
    for (const server of this.#inOrder()) {
      try {
        const stream = await server.open(authority, signal);
        this.#avoidedUntil.delete(server);
        return stream;
      } catch (error) {
        if (!(error instanceof Refusal) || !error.isOfServer || signal.aborted) throw error;
        this.#avoid(server, error);
        // A server's answer about its agents tells more than the fact that another server is away.
        if (last === undefined || error.status === 503) last = error;
      }
    }
    throw last ?? serverAway("there is no server");
  }

  /** Opens the sessions before the first dial. */
  warm(): void {
    for (const server of this.#servers) void server.warm().catch((error) => this.#avoid(server, error));
  }

  /** The certificate has changed. */
  renew(): void {
    for (const server of this.#servers) server.renew();
  }

  destroy(): void {
    for (const server of this.#servers) server.destroy();
  }

  #avoid(server: UpstreamServer, refusal: Refusal): void {
    this.#avoidedUntil.set(server, performance.now() + AVOIDED_MS);
    this.#events.onFailed(server.at, refusal);
  }

  #inOrder(): UpstreamServer[] {
    const now = performance.now();
    const isAvoided = (server: UpstreamServer): boolean => (this.#avoidedUntil.get(server) ?? 0) > now;
    return [...this.#servers.filter((each) => !isAvoided(each)), ...this.#servers.filter(isAvoided)];
  }
}
