import { createHash } from "node:crypto";
import * as z from "zod";
import { firstIssue, jsonOf, schemaMessage } from "../../shared/basics/text.ts";
import { type KubeCollection, KubeFailure } from "../../shared/kubernetes/kube-collection.ts";

export const LEASES = { group: "coordination.k8s.io", plural: "leases", singular: "lease" };

/** As Konnectivity's servers have it (cmd/server/app/server.go). */
const DURATION_S = 30;
const RENEW_MS = 15_000;
/** After a failure a lease is still good for one more attempt or two, ms. */
const RETRY_MS = 3_000;
/** The interval varies by this share, so that servers that started together do not write together. */
const JITTER = 0.04;
/** Within this time a lease is deleted or left behind, ms: the process is about to end. */
const DELETE_MS = 2_000;

/** Fields that we do not know are sent back unchanged. */
const StoredLease = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()).optional() }),
  spec: z.looseObject({}).default({}),
});
type StoredLease = z.infer<typeof StoredLease>;

interface OwnLeaseOptions {
  readonly leases: KubeCollection;
  readonly serverId: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Called after each attempt to write the lease; without a failure it is written. */
  onAttempt(failure?: KubeFailure): void;
  /** Interval of renewals, ms. */
  readonly renewMs?: number;
}

/** The Lease of this server: it is created, renewed while the server serves, and deleted when it is about to end. */
export class OwnLease {
  readonly #options: OwnLeaseOptions;
  readonly #name: string;
  readonly #left = new AbortController();
  #latest: StoredLease | undefined;
  #timer: NodeJS.Timeout | undefined;
  #leaving: Promise<void> | undefined;

  constructor(options: OwnLeaseOptions) {
    this.#options = options;
    this.#name = leaseName(options.serverId);
  }

  /** Resolves after the first attempt. */
  start(): Promise<void> {
    return this.#renew();
  }

  /** Renews it no more, and deletes it, so that nobody looks for this server. Never rejects. */
  leave(): Promise<void> {
    this.#leaving ??= this.#leave();
    return this.#leaving;
  }

  async #leave(): Promise<void> {
    this.#left.abort();
    clearTimeout(this.#timer);
    const { leases, onAttempt } = this.#options;
    try {
      const signal = AbortSignal.timeout(DELETE_MS);
      const answer = await leases.ask("delete", { name: this.#name, signal });
      if (answer.status !== 404) leases.requireSuccess(answer, "delete", this.#name);
    } catch (error) {
      if (!(error instanceof KubeFailure)) throw error;
      onAttempt(error);
    }
  }

  async #renew(): Promise<void> {
    const { onAttempt } = this.#options;
    let failure: KubeFailure | undefined;
    try {
      await this.#write();
    } catch (error) {
      if (!(error instanceof KubeFailure)) throw error;
      failure = error;
    }
    if (this.#left.signal.aborted) return;
    onAttempt(failure);
    const { renewMs = RENEW_MS } = this.#options;
    const ms = (failure === undefined ? renewMs : Math.min(RETRY_MS, renewMs)) * (1 + Math.random() * JITTER);
    this.#timer = setTimeout(() => void this.#renew(), ms).unref();
  }

  /** Nobody else writes this lease, so that the version of the last time is mostly right. */
  async #write(): Promise<void> {
    if (this.#latest !== undefined && (await this.#update(this.#latest))) return;
    const { leases } = this.#options;
    const signal = this.#left.signal;
    const present = await leases.ask("get", { name: this.#name, signal });
    if (present.status === 404) {
      const body = this.#renewed({ metadata: { name: this.#name }, spec: {} });
      const created = await leases.ask("create", { name: this.#name, body, signal });
      leases.requireSuccess(created, "create", this.#name);
      this.#latest = this.#parsed(created.text);
      return;
    }
    leases.requireSuccess(present, "get", this.#name);
    const base = this.#parsed(present.text);
    if (!(await this.#update(base))) throw leases.unexpected("a lease of our own", "others write it, too");
  }

  /** Returns false if the lease has been changed or deleted since. */
  async #update(base: StoredLease): Promise<boolean> {
    const { leases } = this.#options;
    const question = { name: this.#name, body: this.#renewed(base), signal: this.#left.signal };
    const answer = await leases.ask("update", question);
    if (answer.status === 404 || answer.status === 409) return false;
    leases.requireSuccess(answer, "update", this.#name);
    this.#latest = this.#parsed(answer.text);
    return true;
  }

  #renewed({ metadata, spec, ...others }: StoredLease): object {
    const { serverId, labels } = this.#options;
    return {
      ...others,
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: { ...metadata, labels },
      spec: { ...spec, holderIdentity: serverId, leaseDurationSeconds: DURATION_S, renewTime: microTime(new Date()) },
    };
  }

  #parsed(text: string): StoredLease {
    const parsed = StoredLease.safeParse(jsonOf(text), { error: schemaMessage });
    if (parsed.success) return parsed.data;
    throw this.#options.leases.unexpected("a lease", firstIssue(parsed.error));
  }
}

/** Kubernetes takes this time with exactly six digits after the point. */
function microTime(time: Date): string {
  return time.toISOString().replace("Z", "000Z");
}

/** The name of an object allows fewer characters than the id of a server. */
export function leaseName(serverId: string): string {
  const name = serverId
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
  if (name === serverId) return `culvert-server-${name}`;
  const hash = createHash("sha256").update(serverId).digest("hex").slice(0, 8);
  return `culvert-server-${name === "" ? "" : `${name}-`}${hash}`;
}

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

/** The facts of one lease. Times are those of `performance.now()`, ms. */
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
interface LeaseTally {
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
