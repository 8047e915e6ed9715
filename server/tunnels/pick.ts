/** The facts that decide which tunnel a CONNECT takes. */
export interface Pickable {
  readonly streamCount: number;
  /** One end accepts no new streams. */
  readonly draining: boolean;
  /** Its link has no carrier. */
  readonly suspended: boolean;
  readonly closed: boolean;
  /** The last dials of its agent have failed. */
  readonly rests: boolean;
  /** A number that grows with each use: the larger, the more recent. */
  readonly lastUsed: number;
}

/**
 * Picks the tunnel with the fewest streams that accepts new ones; among equals, the one that was used longest ago. A
 * tunnel whose dials fail comes after all others.
 */
export function pick<T extends Pickable>(tunnels: Iterable<T>, except?: T): T | undefined {
  let best: T | undefined;
  for (const tunnel of tunnels) {
    if (tunnel === except || tunnel.draining || tunnel.suspended || tunnel.closed) continue;
    if (best === undefined || precedes(tunnel, best)) best = tunnel;
  }
  return best;
}

function precedes(one: Pickable, other: Pickable): boolean {
  if (one.rests !== other.rests) return other.rests;
  if (one.streamCount !== other.streamCount) return one.streamCount < other.streamCount;
  return one.lastUsed < other.lastUsed;
}
