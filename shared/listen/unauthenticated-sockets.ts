import { BySource } from "../basics/by-source.ts";
import { fileLimit } from "../limits/file-descriptors.ts";

/**
 * The part of the open files of the process that connections may take before their first request has come. The other
 * half is for clients that have shown who they are. A storm of honest agents is smaller: 2,000 at `ulimit -n 4096`.
 */
const PART_OF_FILES = 1 / 2;

/** Why one of them is dropped. */
export const CROWDED_OUT = "half of the files that this process may open are connections without a request (ulimit -n)";

/** A connection whose client has not shown who it is. */
export interface Unauthenticated {
  readonly network: string;
  /** Called when it has to make room, because the process has too many of them. */
  onCrowdedOut(): void;
}

/**
 * The TCP connections of all ports of a process from their accept until their first request. Connections of agents that
 * prove themselves by inner TLS are among them until that has succeeded. Each port and cluster has bounds of its own,
 * which do not know how many files the process may have open. One too many drops the oldest of the network that has
 * most.
 */
export class UnauthenticatedSockets {
  readonly #most: number;
  readonly #bySource = new BySource<Unauthenticated>();

  constructor(limit: number | undefined) {
    this.#most = limit === undefined ? Number.POSITIVE_INFINITY : Math.floor(limit * PART_OF_FILES);
  }

  get size(): number {
    return this.#bySource.size;
  }

  /** The owner of the connection is asked to drop it, and it leaves, if there is one too many. */
  add(connection: Unauthenticated): void {
    this.#bySource.add(connection, connection.network);
    const oldest = this.#bySource.size > this.#most ? this.#bySource.oldestOfFullest : undefined;
    if (oldest === undefined) return;
    this.#bySource.delete(oldest);
    oldest.onCrowdedOut();
  }

  delete(connection: Unauthenticated): void {
    this.#bySource.delete(connection);
  }
}

/** Descriptors belong to the process, and so do these. */
export const UNAUTHENTICATED = new UnauthenticatedSockets(fileLimit());
