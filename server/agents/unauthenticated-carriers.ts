import type { Duplex } from "node:stream";
import { networkOf } from "../../shared/address/network.ts";
import { BySource } from "../../shared/basics/by-source.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Time for a refusal that was just sent to arrive before the connection is destroyed, ms. */
const LINGER_MS = 200;

/**
 * The time within which a carrier must be authenticated: one deadline for all steps, after which the connection is
 * destroyed, also if its refusal is under way. The verification of a token has its own deadline.
 */
export class HandshakeDeadline {
  readonly #socket: Duplex;
  /** Why the carrier was dropped before its deadline. */
  dropped: LinkRefused | undefined;
  #leave: () => void = nothing;
  #until: number;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(socket: Duplex, ms: number) {
    this.#socket = socket;
    this.#until = performance.now() + ms;
    if (socket.closed) {
      this.end();
      return;
    }
    socket.once("close", this.#onClose);
    this.#start();
  }

  readonly #onClose = (): void => this.end();

  get leftMs(): number {
    return Math.max(1, this.#until - performance.now());
  }

  /** Gives up the place that it had, and calls `leave` when it leaves the new one. */
  occupy(leave: () => void): void {
    this.vacate();
    this.#leave = leave;
    if (this.#isOver) this.vacate();
  }

  /** Gives its place up. */
  vacate(): void {
    const leave = this.#leave;
    this.#leave = nothing;
    leave();
  }

  /** Stops the clock during `verify`. */
  async pausedDuring<T>(verify: () => Promise<T>): Promise<T> {
    const { leftMs } = this;
    clearTimeout(this.#timer);
    try {
      return await verify();
    } finally {
      this.#until = performance.now() + leftMs;
      if (!this.#isOver) this.#start();
    }
  }

  #start(): void {
    this.#timer = setTimeout(this.#onDeadline, this.leftMs + LINGER_MS);
  }

  readonly #onDeadline = (): void => {
    if (this.#socket.destroyed) this.end();
    else this.#socket.destroy();
  };

  /** The carrier is authenticated, resumed or closed. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket.off("close", this.#onClose);
    this.vacate();
  }
}

interface CarrierPlace {
  readonly deadline: HandshakeDeadline;
  readonly close: (reason: string) => void;
}

/**
 * The unauthenticated carriers in one stage of their handshake: a bounded number for each cluster. One too many drops
 * the oldest of the network that has most, since a real agent takes a few round trips.
 */
export class UnauthenticatedCarriers {
  readonly #most: number;
  readonly #byCluster = new Map<string, BySource<CarrierPlace>>();

  /** `most`: the bound of one cluster. */
  constructor(most: number) {
    this.#most = most;
  }

  sizeOf(cluster: string): number {
    return this.#byCluster.get(cluster)?.size ?? 0;
  }

  /**
   * Holds one more until its deadline ends or moves on to the next stage. `close` ends the carrier if it is dropped.
   */
  enter(cluster: string, address: string, deadline: HandshakeDeadline, close: (reason: string) => void): void {
    const places = this.#byCluster.get(cluster) ?? new BySource<CarrierPlace>();
    this.#byCluster.set(cluster, places);
    const place = { deadline, close };
    places.add(place, networkOf(address));
    deadline.occupy(() => {
      places.delete(place);
      if (places.size === 0 && this.#byCluster.get(cluster) === places) this.#byCluster.delete(cluster);
    });
    if (places.size > this.#most) drop(places.oldestOfFullest, cluster);
  }
}

function drop(place: CarrierPlace | undefined, cluster: string): void {
  if (place === undefined) return;
  const reason = `too many agents of cluster "${cluster}" are in their inner TLS handshake (--max-inner-handshakes): the oldest was dropped`;
  place.deadline.dropped = new LinkRefused({ closeCode: CloseCode.limited, reason });
  place.deadline.vacate(); // at once: its connection may take a moment to end
  place.close(reason);
}

function nothing(): void {}
