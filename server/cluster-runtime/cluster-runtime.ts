import type { Target } from "../../shared/address/target.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import { PRESSURE } from "../../shared/limits/memory-account.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { ConditionLog } from "../../shared/runtime/throttled-log.ts";
import { type Expiring, expiryConditions } from "../../shared/tls/expiry.ts";
import { permits, subjectOf } from "../../shared/tls/identity.ts";
import { unfit } from "../../shared/tls/tls-material.ts";
import { type Cluster, type ClusterChanges, SIDES, type SideName } from "../clusters/cluster.ts";
import type { Limits } from "../clusters/document.ts";
import { routingRules } from "../clusters/routing-rules.ts";
import { ClusterFigures } from "../metrics/cluster-figures.ts";
import type { ApiServerState } from "../tokens/verifier.ts";
import { endUnclaimable } from "../tunnels/agent-places.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import { SideExpiry } from "./flag-certificates.ts";
import { type ClusterSetup, ClusterVirtualHost, missingWarning, type UnixHost } from "./virtual-host.ts";

/** Seconds' worth of CONNECTs that pass at once, because callers come in bursts, above all after a restart. */
const CONNECT_BURST_S = 2;
/** Seconds' worth of bytes that pass at once. Bytes come in chunks; a longer burst would disturb the neighbours. */
const BYTES_BURST_S = 0.1;

/**
 * While the connections of a cluster hold more than `limits.memory`, each of them is slowed down to 1 MB/s, so that the
 * memory shrinks as their readers go on.
 */
const MS_PER_BYTE_ABOVE_CAP = 1 / 1_000;

/**
 * Time in which an agent proves by a new handshake that it is still trusted, ms: long enough for one failed and one
 * good resume.
 */
const PROOF_MS = 10_000;

/**
 * One cluster as this server serves it: its tunnels, its virtual hosts on the TLS ports, and its admission of CONNECTs.
 */
export class ClusterRuntime {
  readonly tunnels: ClusterTunnels;
  readonly agents: ClusterVirtualHost;
  readonly callers: ClusterVirtualHost;
  readonly unix: UnixHost;
  readonly figures: ClusterFigures;
  /** Whether the cluster comes from the flags, not from a document. */
  readonly isOfFlags: boolean;
  readonly hasDirectory: boolean;
  readonly #context: ServerContext;
  readonly #expiry: readonly SideExpiry[];
  readonly #expiryLog: ConditionLog;
  #cluster: Cluster;
  #connects: TokenBucket | undefined;
  #bytes: TokenBucket | undefined;
  /**
   * Pause after this many bytes, ms with fractions. Every connection asks for its bytes, so that a new limit also
   * applies to open connections.
   */
  readonly pace = (bytes: number): number => {
    this.figures.carried += bytes;
    const restMs = this.#bytes?.charge(bytes) ?? 0;
    if (restMs > 0) this.figures.limitHit("bytesPerSecond");
    if (this.tunnels.memory.capPressure < PRESSURE.slowed) return restMs;
    return Math.max(restMs, bytes * MS_PER_BYTE_ABOVE_CAP);
  };

  constructor(cluster: Cluster, tunnels: ClusterTunnels, setup: ClusterSetup, context: ServerContext) {
    this.#cluster = cluster;
    this.#context = context;
    this.tunnels = tunnels;
    this.isOfFlags = setup.isOfFlags;
    this.hasDirectory = context.options.directory.length > 0;
    const onHandshakeLimit = () => this.figures.limitHit("handshakesPerSecond");
    this.agents = new ClusterVirtualHost(tunnels, "agents", cluster.agents, setup, context, onHandshakeLimit);
    this.callers = new ClusterVirtualHost(tunnels, "callers", cluster.callers, setup, context, onHandshakeLimit);
    this.unix = { kind: "unix", tunnels };
    this.#apply(cluster);
    this.#applyLimits(cluster);
    // These have timers until they are closed, so nothing may throw after they are made.
    this.figures = new ClusterFigures();
    this.figures.refusals.onAdded = () => context.tunnels.changed?.add(cluster.name);
    this.#expiry = SIDES.map((side) => new SideExpiry(side, () => this.#inUse(side)));
    this.#expiryLog = new ConditionLog(context.log, () => expiryConditions(this.expiring(), new Date()));
    this.#expiryLog.check();
  }

  get cluster(): Cluster {
    return this.#cluster;
  }

  /** Why it is not served as its document says, or why clients cannot connect. */
  problems(now = new Date()): string[] {
    return SIDES.flatMap((side) => {
      const { tokenProblem, worksWithoutTls } = this[side];
      const missing = worksWithoutTls ? undefined : missingWarning(this.cluster, this[side]);
      return [missing ?? [], tokenProblem ?? [], this.#unfit(side, now) ?? []].flat();
    });
  }

  /** Whether the API servers that verify its tokens answer; `undefined` if none is asked. */
  get apiServerState(): ApiServerState | undefined {
    const states = SIDES.flatMap((side) => this[side].verifier?.apiServer ?? []);
    return states.find(({ state }) => state === "failing") ?? states[0];
  }

  /** The certificates of its document that expire. The certificates of the flags are reported once for all clusters. */
  *expiring(): Generator<Expiring> {
    for (const side of this.#expiry) yield* side;
  }

  #inUse(side: SideName) {
    const { ownCertificate: certificate, ownCa: ca } = this[side];
    const { name: cluster, file } = this.#cluster;
    const fields = { cluster, file };
    const by = { certificate: `${side}.cert`, ca: `${side}.ca` };
    return { certificate, ca, by, cluster, certificateFields: fields, caFields: fields };
  }

  #unfit(side: SideName, now: Date): string | undefined {
    const { ownCertificate } = this[side];
    const fault = ownCertificate && unfit(ownCertificate, now);
    if (fault === undefined) return undefined;
    const { name, file } = this.#cluster;
    return `${file}: cluster "${name}": ${side}.cert ${fault}: ${side} refuse this server`;
  }

  /** The cluster is not served any more. The owner of this object ends what is open. */
  close(): void {
    this.tunnels.closedBecause = `cluster "${this.#cluster.name}" is not served here any more`;
    this.agents.close();
    this.callers.close();
    this.figures.close();
    this.#expiryLog.close();
  }

  update(cluster: Cluster, what: ClusterChanges): void {
    this.#cluster = cluster;
    this.#apply(cluster);
    if (what.limits) this.#applyLimits(cluster);
    this.#context.tunnels.changed?.add(cluster.name);
    this.#expiryLog.check();
  }

  #apply({ name, agents, callers, suspended }: Cluster): void {
    const { proxyStrategies: strategies, strictIdentifiers: strict } = this.#context.options;
    this.tunnels.rules = routingRules(agents, { strategies, strict }, this.isOfFlags);
    this.tunnels.closedBecause = suspended ? `cluster "${name}" is suspended` : undefined;
    this.agents.update(agents, suspended);
    this.callers.update(callers, suspended);
  }

  #applyLimits({ name, limits: { connectsPerSecond, bytesPerSecond, handshakesPerSecond, memory } }: Cluster): void {
    const sentence = `cluster "${name}" is at its limit: ${handshakesPerSecond} handshakes a second (limits.handshakesPerSecond)`;
    for (const side of SIDES) this[side].handshakes.set(() => bucketOf(handshakesPerSecond, CONNECT_BURST_S), sentence);
    this.tunnels.memory.cap = memory ?? Number.POSITIVE_INFINITY;
    this.#connects = bucketOf(connectsPerSecond, CONNECT_BURST_S);
    this.#bytes = bucketOf(bytesPerSecond, BYTES_BURST_S);
  }

  /** Throws `forbidden` for a target that the document does not allow. */
  requireTarget(target: Target): void {
    const { name, suspended, targets } = this.#cluster;
    if (suspended) throw new CulvertError("forbidden", `cluster "${name}" is suspended`);
    const objection = targets.objection(target);
    if (objection !== undefined) throw new CulvertError("forbidden", printable(objection));
  }

  /**
   * Counts one CONNECT for this target; throws `forbidden` or `limited` if it may not be opened now. Limits count where
   * callers come in: CONNECTs that came over another server are among that server's.
   */
  requireAdmission(target: Target): void {
    this.requireTarget(target);
    this.#requireRoom();
  }

  /** The same for a destination that an agent asks for: it counts against the limits as a CONNECT does. */
  requireDestination(target: Target): void {
    const { name, suspended, destinations } = this.#cluster;
    if (suspended) throw new CulvertError("forbidden", `cluster "${name}" is suspended`);
    const objection = destinations.objection(target);
    if (objection !== undefined) throw new CulvertError("forbidden", printable(objection));
    this.#requireRoom();
  }

  #requireRoom(): void {
    const { limits } = this.#cluster;
    const pending = this.tunnels.pendingConnects - this.tunnels.ofPeers.pending;
    if (limits.pendingConnects !== undefined && pending >= limits.pendingConnects) {
      throw this.#limited(`${limits.pendingConnects} CONNECTs wait for an answer`, "pendingConnects", 1_000);
    }
    if (limits.streams !== undefined && this.#streams() + pending >= limits.streams) {
      throw this.#limited(`${limits.streams} connections are open`, "streams", 1_000);
    }
    if (this.tunnels.memory.capPressure === PRESSURE.full) {
      throw this.#limited("its connections hold too much for slow readers", "memory", 1_000);
    }
    const waitMs = this.#connects?.take(1) ?? 0;
    if (waitMs > 0) throw this.#limited(`${limits.connectsPerSecond} CONNECTs a second`, "connectsPerSecond", waitMs);
  }

  #limited(what: string, limit: keyof Limits, retryAfterMs: number): CulvertError {
    this.figures.limitHit(limit);
    const sentence = `cluster "${this.#cluster.name}" is at its limit: ${what} (limits.${limit})`;
    return new CulvertError("limited", sentence, { retryAfterMs });
  }

  /** A stream to an agent counts from its opening, before the answer. */
  #streams(): number {
    const { hopStreams, ofPeers } = this.tunnels;
    let streams = hopStreams - ofPeers.open - ofPeers.pending;
    for (const tunnel of this.tunnels.tunnels()) streams += tunnel.streamCount;
    return Math.max(0, streams);
  }

  // ── its agents after a change ─────────────────────────────────────────────────────────────────────────────────────

  /** Asks every agent for a new connection. Its streams do not notice. */
  rotateAgents(reason: string): void {
    for (const tunnel of this.tunnels.tunnels()) tunnel.rotate(reason);
  }

  /** Ends the tunnels whose certificates are revoked now. The others do not notice. */
  endRevokedAgents(turns: TurnQueue): void {
    for (const tunnel of this.tunnels.tunnels()) {
      turns.run(() => {
        if (!tunnel.closed && this.#isRevoked(tunnel)) endAsRevoked(tunnel);
      });
    }
  }

  /** Ends the tunnels of agents that may not claim any more what they do. */
  reverifyClaims(): void {
    for (const tunnel of this.tunnels.tunnels()) endUnclaimable(tunnel, this.tunnels);
  }

  /**
   * Applies changed trust to the tunnels. Agents that are no longer among the identities end now. Only a new handshake
   * can tell whether a certificate is good by the present CA (RFC 5280 §6.1), so the others are asked for one, and end
   * unless it succeeds in time.
   */
  reverifyAgents(): void {
    const { identities, rule } = this.agents;
    for (const tunnel of this.tunnels.tunnels()) {
      const { peer } = tunnel.agent;
      if (peer !== undefined && !permits(identities, "agent", peer)) {
        tunnel.destroy(new Error(`${printable(subjectOf(peer), 120)} is no longer among ${rule}`));
      } else if (this.#isRevoked(tunnel)) endAsRevoked(tunnel);
      else if (tunnel.protocol === "konnectivity") this.#reverifyKonnectivity(tunnel);
      else tunnel.requireProof(`the trust of cluster "${this.#cluster.name}" has changed`, PROOF_MS);
    }
  }

  /** Its streams would end with its connection, so its certificate is compared with the present CA here. */
  #reverifyKonnectivity(tunnel: Tunnel): void {
    const { peer } = tunnel.agent;
    const { takesKonnectivity, trust } = this.agents;
    if (!takesKonnectivity) tunnel.destroy(new Error("agents of Konnectivity are not taken here any more"));
    else if (peer !== undefined && trust.status(peer.chain) === "untrusted") {
      tunnel.destroy(new Error("its certificate is not signed by a CA that is accepted now"));
    }
  }

  #isRevoked({ agent: { peer } }: Tunnel): boolean {
    const { trust } = this.agents;
    return peer !== undefined && trust.lists.length > 0 && trust.status(peer.chain) === "revoked";
  }
}

function endAsRevoked(tunnel: Tunnel): void {
  tunnel.destroy(new Error("the agent's certificate is revoked"));
}

function bucketOf(perSecond: number | undefined, burstSeconds: number): TokenBucket | undefined {
  if (perSecond === undefined) return undefined;
  return new TokenBucket({ perSecond, burst: Math.max(1, burstSeconds * perSecond) });
}
