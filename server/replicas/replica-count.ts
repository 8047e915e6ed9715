import * as z from "zod";
import { ConfigError } from "../../shared/config/options.ts";
import { inCluster, kubeconfig, type ReadAccess } from "../../shared/kubernetes/access.ts";
import { KubeCollection, KubeFailure, ObjectWatch } from "../../shared/kubernetes/kube-collection.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ServerOptions } from "../options/options.ts";
import { LEASES, Lease, LeaseBook, OwnLease } from "./leases.ts";

/** A timer may be early by a fraction of this, ms. */
const EXPIRY_MARGIN_MS = 20;
/** Others may write leases of any duration, ms. */
const MAX_EXPIRY_MS = 60_000;

/** Number of stale leases that are deleted at one time: each is a request, and each deletion causes the next count. */
const MOST_COLLECTING = 8;

type SetCount = (count: number) => boolean;

/**
 * Counts by the Service that the options name, or else by leases, and gives each number to `setCount`, which returns
 * false if it is the same as before. `access`, for tests: the API of this pod's own cluster. Throws a `ConfigError`.
 */
export function startReplicaCount(
  options: ServerOptions,
  setCount: SetCount,
  log: Logger,
  access?: ReadAccess,
): ReplicaCount {
  try {
    if (options.serverCountService !== "") return new EndpointCount(options.serverCountService, setCount, log, access);
    return new LeaseCount(options, setCount, log);
  } catch (error) {
    if (!(error instanceof KubeFailure)) throw error;
    const flag = options.serverCountService === "" ? "--enable-lease-controller" : "--server-count-service";
    throw new ConfigError(`${flag}: ${error.message}.`, { cause: error });
  }
}

/**
 * Counts the servers. Sets the number in `ServerCount` and logs it when it changes, and logs a fault when it begins and
 * when it ends.
 */
export abstract class ReplicaCount {
  /** The objects that are counted, for operators. */
  readonly source: string;
  readonly #setCount: SetCount;
  readonly #log: Logger;
  readonly #faults = new Map<string, string>();

  constructor(source: string, setCount: SetCount, log: Logger) {
    this.source = source;
    this.#setCount = setCount;
    this.#log = log;
  }

  /** Why the number may be out of date, as a sentence; absent: it is not. */
  get fault(): string | undefined {
    return [...this.#faults.values()][0];
  }

  /** This server takes nothing new: others shall not count it any more. */
  abstract leave(): Promise<void>;

  /** Leaves, and resolves within seconds, whatever the API server does. */
  abstract close(): Promise<void>;

  /** A server that asks is there itself, whatever it finds. */
  protected counted(found: number): void {
    this.succeeded("count");
    const count = Math.max(1, found);
    if (this.#setCount(count)) this.#log.info({ servers: count, source: this.source }, "number of servers changed");
  }

  protected failed(part: string, sentence: string): void {
    if (this.#faults.get(part) === sentence) return;
    this.#faults.set(part, sentence);
    this.#log.warn({ source: this.source, reason: sentence }, "the number of servers may be wrong, here or at others");
  }

  protected succeeded(part: string): void {
    if (this.#faults.delete(part) && this.#faults.size === 0) {
      this.#log.info({ source: this.source }, "the number of servers is right again");
    }
  }
}

export const ENDPOINT_SLICES = { group: "discovery.k8s.io", plural: "endpointslices", singular: "EndpointSlice" };

/** The label by which EndpointSlices belong to a Service. */
const SERVICE_LABEL = "kubernetes.io/service-name";

/** The fields of an EndpointSlice (discovery.k8s.io/v1) that are read. */
export const EndpointSlice = z.object({
  metadata: z.object({ name: z.string() }),
  endpoints: z
    .array(
      z.object({
        addresses: z.array(z.string()).default([]),
        conditions: z.object({ ready: z.boolean().nullish(), terminating: z.boolean().nullish() }).nullish(),
        targetRef: z.object({ uid: z.string().optional() }).nullish(),
      }),
    )
    .nullish(),
});
export type EndpointSlice = z.infer<typeof EndpointSlice>;

/**
 * The number of servers behind a Service: its endpoints that are ready and do not end. A pod with IPv4 and IPv6 is in
 * two slices and counts once. With `publishNotReadyAddresses` every pod is ready here.
 */
export function serversIn(slices: readonly EndpointSlice[]): number {
  const servers = new Set<string>();
  for (const { endpoints } of slices) {
    for (const { addresses, conditions, targetRef } of endpoints ?? []) {
      const id = targetRef?.uid ?? addresses[0];
      // Kubernetes: no condition "ready" is to be read as ready.
      if (id !== undefined && conditions?.ready !== false && conditions?.terminating !== true) servers.add(id);
    }
  }
  return servers.size;
}

/** Counts the endpoints of a Service of this pod's own cluster. */
class EndpointCount extends ReplicaCount {
  readonly #slices: KubeCollection;
  readonly #watch: ObjectWatch<EndpointSlice>;

  constructor(service: string, setCount: SetCount, log: Logger, access: ReadAccess = inCluster()) {
    super(`EndpointSlices of Service ${service}`, setCount, log);
    const [namespace = "", name = ""] = service.split("/");
    this.#slices = new KubeCollection(access, ENDPOINT_SLICES, namespace);
    this.#watch = new ObjectWatch({
      collection: this.#slices,
      labelSelector: `${SERVICE_LABEL}=${name}`,
      schema: EndpointSlice,
      onObjects: (slices) => {
        // A Service with a selector has a slice before it has an endpoint: this one does not exist, and 1 would be a
        // guess.
        if (slices.length === 0) {
          this.failed("slices", `there are no ${this.source}: check --server-count-service`);
          this.succeeded("count");
        } else {
          this.counted(serversIn(slices));
          this.succeeded("slices");
        }
      },
      onFailure: ({ message }) => this.failed("count", message),
    });
    this.#watch.start();
  }

  /** Kubernetes marks the endpoint of a pod that ends by itself. */
  async leave(): Promise<void> {}

  async close(): Promise<void> {
    this.#watch.close();
    this.#slices.close();
  }
}

/** Writes a lease for this server, counts those of all, and deletes what servers that were killed have left behind. */
class LeaseCount extends ReplicaCount {
  readonly #leases: KubeCollection;
  readonly #watch: ObjectWatch<Lease>;
  readonly #own: OwnLease;
  readonly #book = new LeaseBook();
  readonly #closed = new AbortController();
  /** Names of stale leases that are being deleted. */
  readonly #collecting = new Set<string>();
  #expiry: NodeJS.Timeout | undefined;

  constructor(options: ServerOptions, setCount: SetCount, log: Logger) {
    const { serverId, leaseNamespace, leaseLabel, kubeconfig: path } = options;
    super(`leases with ${leaseLabel.join(",")} in namespace ${leaseNamespace}`, setCount, log);
    this.#leases = new KubeCollection(path === "" ? inCluster() : kubeconfig(path), LEASES, leaseNamespace);
    this.#own = new OwnLease({
      leases: this.#leases,
      serverId,
      labels: Object.fromEntries(leaseLabel.map((label) => label.split("="))),
      onAttempt: (failure) => (failure ? this.failed("own lease", failure.message) : this.succeeded("own lease")),
    });
    this.#watch = new ObjectWatch({
      collection: this.#leases,
      labelSelector: leaseLabel.join(","),
      schema: Lease,
      onObjects: (leases) => this.#count(leases),
      onFailure: ({ message }) => this.failed("count", message),
    });
    // After the first attempt, so that this server finds itself.
    void this.#own.start().then(() => {
      if (!this.#closed.signal.aborted) this.#watch.start();
    });
  }

  async leave(): Promise<void> {
    await this.#own.leave();
  }

  async close(): Promise<void> {
    clearTimeout(this.#expiry);
    this.#closed.abort();
    this.#watch.close();
    await this.#own.leave();
    this.#leases.close();
  }

  #count(leases: readonly Lease[]): void {
    const { valid, nextMs, stale } = this.#book.count(leases);
    this.counted(valid);
    for (const lease of stale) {
      if (this.#collecting.size >= MOST_COLLECTING) break;
      if (!this.#collecting.has(lease.name)) void this.#collect(lease);
    }
    clearTimeout(this.#expiry);
    // A lease may have been renewed although the watch has said nothing: a list decides.
    if (nextMs === undefined) return;
    const ms = Math.min(MAX_EXPIRY_MS, nextMs + EXPIRY_MARGIN_MS);
    this.#expiry = setTimeout(() => this.#watch.listAgain(), ms).unref();
  }

  /** Another server may be faster, and the lease may have been renewed: both are no failure. */
  async #collect({ name, version }: { readonly name: string; readonly version: string }): Promise<void> {
    const body = { preconditions: { resourceVersion: version } };
    this.#collecting.add(name);
    try {
      const answer = await this.#leases.ask("delete", { name, body, signal: this.#closed.signal });
      if (answer.status !== 404 && answer.status !== 409) this.#leases.requireSuccess(answer, "delete", name);
      this.succeeded("old leases");
    } catch (error) {
      if (!(error instanceof KubeFailure)) throw error;
      if (!this.#closed.signal.aborted) this.failed("old leases", error.message);
    } finally {
      this.#collecting.delete(name);
    }
  }
}
