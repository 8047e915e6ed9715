import * as z from "zod";

export const LEASES = { group: "coordination.k8s.io", plural: "leases", singular: "lease" };

/** The fields of a Lease (coordination.k8s.io/v1) that are read. */
export const Lease = z.object({
  metadata: z.object({ name: z.string(), resourceVersion: z.string().optional() }),
  // Optional in the API. A lease without it has ended, and must not hide the others.
  spec: z
    .object({
      leaseDurationSeconds: z.number().nullish(),
      renewTime: z.string().nullish(),
      acquireTime: z.string().nullish(),
    })
    .default({}),
});
export type Lease = z.infer<typeof Lease>;

/** What is known of one lease. Times are those of `performance.now()`, ms. */
interface Watched {
  readonly version: string;
  readonly durationMs: number;
  readonly firstSeenMs: number;
  /** When it was last seen to be renewed; absent: not since we watch. */
  readonly renewedMs?: number;
  /** When it ends by the clock of its server, compared with ours. */
  readonly writtenEndMs: number;
}

/** The present leases. */
export interface LeaseTally {
  readonly valid: number;
  /** When the next of them ends or becomes stale unless it is renewed, in ms from now; absent: none will. */
  readonly nextMs?: number;
  /** Leases of servers that have gone without deleting them. */
  readonly stale: readonly { readonly name: string; readonly version: string }[];
}

/**
 * Decides which leases are valid. As in Konnectivity, a lease is valid until its duration after its last renewal has
 * passed. Once a renewal has been seen, our own clock alone measures that: clocks of other servers may differ.
 */
export class LeaseBook {
  #watched = new Map<string, Watched>();

  /** Takes the present leases, and counts. */
  count(leases: readonly Lease[], nowMs = performance.now(), wallMs = Date.now()): LeaseTally {
    const before = this.#watched;
    this.#watched = new Map(
      leases.map((lease) => {
        const known = before.get(lease.metadata.name);
        return [lease.metadata.name, known === undefined ? seen(lease, nowMs, wallMs) : seenAgain(known, lease, nowMs)];
      }),
    );
    const all = [...this.#watched];
    const times = all.flatMap(([, watched]) => [endOf(watched), staleFrom(watched)]).filter((time) => time > nowMs);
    return {
      valid: all.filter(([, watched]) => endOf(watched) > nowMs).length,
      ...(times.length === 0 ? {} : { nextMs: Math.min(...times) - nowMs }),
      stale: all.filter(([, watched]) => staleFrom(watched) <= nowMs).map(([name, { version }]) => ({ name, version })),
    };
  }
}

function seen({ metadata, spec }: Lease, nowMs: number, wallMs: number): Watched {
  const durationMs = (spec.leaseDurationSeconds ?? 0) * 1_000;
  const renewedAt = Date.parse(spec.renewTime ?? spec.acquireTime ?? "");
  // No longer than if it were renewed now: its server's clock may be ahead of ours.
  const ageMs = Number.isNaN(renewedAt) ? Number.POSITIVE_INFINITY : Math.max(0, wallMs - renewedAt);
  const writtenEndMs = nowMs + durationMs - ageMs;
  return { version: metadata.resourceVersion ?? "", durationMs, firstSeenMs: nowMs, writtenEndMs };
}

function seenAgain(known: Watched, lease: Lease, nowMs: number): Watched {
  const { metadata, spec } = lease;
  if (metadata.resourceVersion === known.version) return known;
  const durationMs = (spec.leaseDurationSeconds ?? 0) * 1_000;
  return { ...known, version: metadata.resourceVersion ?? "", durationMs, renewedMs: nowMs };
}

function endOf({ renewedMs, durationMs, writtenEndMs }: Watched): number {
  return renewedMs === undefined ? writtenEndMs : renewedMs + durationMs;
}

/**
 * A lease is watched for its whole duration before it is stale: no clock of another server decides about a deletion.
 */
function staleFrom(watched: Watched): number {
  const { firstSeenMs, renewedMs = firstSeenMs, durationMs } = watched;
  return Math.max(endOf(watched), renewedMs + durationMs);
}
