import { networkOf } from "../../shared/address/network.ts";
import { BySource } from "../../shared/basics/by-source.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { HandshakeTime } from "./handshake-time.ts";

interface AnonymousPlace {
  readonly time: HandshakeTime;
  readonly end: (reason: string) => void;
}

/**
 * Carriers of which nobody knows yet whose they are, in one stage of their handshake: few for each cluster. One too
 * many drops the oldest of the network that has most, since a real agent takes a few round trips and goes on.
 */
export class AnonymousCarriers {
  readonly #most: number;
  readonly #byCluster = new Map<string, BySource<AnonymousPlace>>();

  /** `most`: of one cluster. */
  constructor(most: number) {
    this.#most = most;
  }

  sizeOf(cluster: string): number {
    return this.#byCluster.get(cluster)?.size ?? 0;
  }

  /** One more, until `time` is over or takes it to the next stage. `end` closes the carrier if it is dropped. */
  enter(cluster: string, address: string, time: HandshakeTime, end: (reason: string) => void): void {
    const places = this.#byCluster.get(cluster) ?? new BySource<AnonymousPlace>();
    this.#byCluster.set(cluster, places);
    const place = { time, end };
    places.add(place, networkOf(address));
    time.occupy(() => {
      places.delete(place);
      if (places.size === 0 && this.#byCluster.get(cluster) === places) this.#byCluster.delete(cluster);
    });
    if (places.size > this.#most) drop(places.oldestOfFullest, cluster);
  }
}

function drop(place: AnonymousPlace | undefined, cluster: string): void {
  if (place === undefined) return;
  const reason = `too many agents of cluster "${cluster}" are in their inner TLS handshake (--max-inner-handshakes): the oldest was dropped`;
  place.time.dropped = new LinkRefused({ closeCode: CloseCode.limited, reason });
  place.time.vacate(); // now: its connection may take a moment to end
  place.end(reason);
}
