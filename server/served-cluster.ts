import type { Target } from "../shared/net/target.ts";
import type { WatchedTls } from "../shared/net/tls-files.ts";
import { CulvertError, printable } from "../shared/outcomes.ts";
import { ClusterDoor } from "./cluster-door.ts";
import { TokenBucket } from "./clusters/buckets.ts";
import type { Cluster, ClusterChanges } from "./clusters/cluster.ts";
import type { UnixDoor } from "./frontend/authenticate.ts";
import type { ClusterTunnels } from "./tunnels/registry.ts";

/** What the flags say of each side, where clusters leave it out. */
export interface FlagMaterial {
  readonly agents: WatchedTls | undefined;
  readonly callers: WatchedTls | undefined;
}

/** In which words a refusal names the list of those that are let in. */
export interface IdentityRules {
  readonly agents: string;
  readonly callers: string;
}

/** So many seconds' worth is let through at once: callers come in bursts, after a restart above all. */
const CONNECT_BURST_S = 2;
/** Bytes come in chunks; what is more than this would be seen by the neighbours. */
const BYTES_BURST_S = 0.1;

/** One cluster as this server serves it: its tunnels, its doors on the TLS ports, and what its callers may ask for. */
export class ServedCluster {
  readonly tunnels: ClusterTunnels;
  readonly agents: ClusterDoor;
  readonly callers: ClusterDoor;
  readonly unix: UnixDoor;
  #cluster: Cluster;
  #connects: TokenBucket | undefined;
  #bytes: TokenBucket | undefined;
  /** How long to rest after so many bytes, ms; asked by every connection, also those that are older than the limit. */
  readonly pace = (bytes: number): number => this.#bytes?.charge(bytes) ?? 0;

  constructor(cluster: Cluster, tunnels: ClusterTunnels, flags: FlagMaterial, rules: IdentityRules) {
    this.#cluster = cluster;
    this.tunnels = tunnels;
    this.agents = new ClusterDoor(tunnels, cluster.agents, flags.agents, rules.agents);
    this.callers = new ClusterDoor(tunnels, cluster.callers, flags.callers, rules.callers);
    this.unix = { kind: "unix", cluster: cluster.name, tunnels };
    this.#fit(cluster);
    this.#limit(cluster);
  }

  get cluster(): Cluster {
    return this.#cluster;
  }

  update(cluster: Cluster, what: ClusterChanges): void {
    this.#cluster = cluster;
    this.#fit(cluster);
    if (what.limits) this.#limit(cluster);
  }

  #fit({ agents, callers, suspended }: Cluster): void {
    this.agents.update(agents, suspended);
    this.callers.update(callers, suspended);
  }

  #limit({ limits: { connectsPerSecond, bytesPerSecond } }: Cluster): void {
    this.#connects = bucketOf(connectsPerSecond, CONNECT_BURST_S);
    this.#bytes = bucketOf(bytesPerSecond, BYTES_BURST_S);
  }

  /** May this target be asked for, now? Throws `forbidden` or `limited`; each yes counts as one CONNECT. */
  mustAdmit(target: Target): void {
    const { name, suspended, targets, limits } = this.#cluster;
    if (suspended) throw new CulvertError("forbidden", `cluster "${name}" is suspended`);
    const objection = targets.judge(target);
    if (objection !== undefined) throw new CulvertError("forbidden", printable(objection));
    if (limits.pendingConnects !== undefined && this.tunnels.pendingConnects >= limits.pendingConnects) {
      throw limited(name, `${limits.pendingConnects} CONNECTs wait for an answer`, "pendingConnects", 1_000);
    }
    if (limits.streams !== undefined && this.#streams() >= limits.streams) {
      throw limited(name, `${limits.streams} connections are open`, "streams", 1_000);
    }
    const waitMs = this.#connects?.take(1) ?? 0;
    if (waitMs > 0) throw limited(name, `${limits.connectsPerSecond} CONNECTs a second`, "connectsPerSecond", waitMs);
  }

  #streams(): number {
    let streams = 0;
    for (const tunnel of this.tunnels.tunnels()) streams += tunnel.streamCount;
    return streams;
  }
}

function bucketOf(perSecond: number | undefined, burstSeconds: number): TokenBucket | undefined {
  if (perSecond === undefined) return undefined;
  return new TokenBucket({ perSecond, burst: Math.max(1, burstSeconds * perSecond) });
}

function limited(cluster: string, what: string, limit: string, retryAfterMs: number): CulvertError {
  return new CulvertError("limited", `cluster "${cluster}" is at its limit: ${what} (limits.${limit})`, {
    retryAfterMs,
  });
}
