import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { networkOf } from "../address/network.ts";
import { BySource } from "../basics/by-source.ts";
import { TurnQueue } from "../basics/turn-queue.ts";
import { fileLimit } from "../limits/file-descriptors.ts";

/**
 * Connections of one port at most. A probe or a scrape takes milliseconds: so many at once are only those that are
 * held. Of a small limit of open files they are a sixteenth, since callers, agents and dials need them more.
 */
export const MAX_CONNECTIONS = 256;
const FRACTION_OF_FILES = 1 / 16;
const MIN_CONNECTIONS = 4;

export function maxConnections(limit = fileLimit()): number {
  if (limit === undefined) return MAX_CONNECTIONS;
  return Math.max(MIN_CONNECTIONS, Math.min(MAX_CONNECTIONS, Math.floor(limit * FRACTION_OF_FILES)));
}

export interface ConnectionsOptions {
  readonly max: number;
  readonly onConnection: (connection: Duplex) => void;
  /** The oldest connection of the network with the most connections was dropped, because there were too many. */
  readonly onDropped: () => void;
}

/**
 * The open connections of a health or admin port. Above the maximum, a new connection replaces the oldest one of the
 * network that has most. A flood therefore replaces its own connections, and probes are still answered.
 */
export class AdminConnections {
  readonly #options: ConnectionsOptions;
  readonly #all = new BySource<Duplex>();
  readonly #turns = new TurnQueue();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#all.size;
  }

  add(connection: Duplex & Pick<Socket, "remoteAddress">): void {
    const { max, onConnection } = this.#options;
    connection.on("error", ignore);
    connection.on("close", () => this.#all.delete(connection));
    this.#all.add(connection, networkOf(connection.remoteAddress ?? ""));
    if (this.#all.size > max) this.#drop(this.#all.oldestOfFullest);
    this.#turns.run(() => {
      if (!connection.destroyed) onConnection(connection);
    });
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy();
  }

  #drop(connection: Duplex | undefined): void {
    if (connection === undefined) return;
    this.#all.delete(connection);
    connection.destroy();
    this.#options.onDropped();
  }
}

function ignore(): void {}
