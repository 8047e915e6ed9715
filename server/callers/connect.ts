import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/address/target.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-share.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { RequestHeader } from "../listeners/usual-connect.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import { OpenConnect } from "../tunnels/open-connects.ts";
import {
  hopEndOf,
  hopEndSentence,
  isClosedInOrder,
  isSessionLost,
  type OpenStreamDeps,
  openStream,
} from "../tunnels/open-stream.ts";
import { authenticate, type Caller, type CallerHost, challenges } from "./authenticate.ts";
import { ConnectRecord, type ConnectRecordDeps } from "./connect-record.ts";
import { PendingCaller } from "./pending-caller.ts";
import * as reply from "./reply.ts";

type ServedCluster = Pick<ClusterRuntime, "tunnels" | "requireAdmission" | "pace">;

interface ServedClusters {
  get(name: string): ServedCluster | undefined;
  /** The other cluster that these callers reach by its name as the target's host. */
  reachedBy(callers: string, target: Target): ServedCluster | undefined;
}

export interface ConnectDeps extends ConnectRecordDeps, OpenStreamDeps {
  readonly options: OpenStreamDeps["options"] &
    Pick<ServerOptions, "maxTokenVerifications" | "establishedGapMs" | "stallTimeoutMs">;
  readonly metrics: ConnectRecordDeps["metrics"];
  /** Comes before the number in the id of a CONNECT. */
  readonly idPrefix: string;
  /** The clusters that are served now. */
  readonly clusters: ServedClusters;
  /**
   * The account that is charged for what callers send before they are admitted. Otherwise unauthenticated peers could
   * use up the memory of a cluster.
   */
  readonly unauthenticatedMemory: Pick<MemoryAccount, "hold" | "enter">;
  /** Throws `overloaded` when this process has hardly a file descriptor left. */
  readonly files: { requireRoom(code: "overloaded"): void };
}

/**
 * One CONNECT, from its request to its last byte:
 *
 * ```
 *  authenticate ─▶ admit: cluster, target, limits ─▶ open a stream ─▶ 200 ─▶ splice ─▶ log line and metrics
 *       └────────────────────┴────────────────────────────┴─▶ one status line of the table of outcomes
 * ```
 */
export async function connect(
  request: RequestHeader,
  connection: IncomingConnection,
  host: CallerHost,
  deps: ConnectDeps,
): Promise<void> {
  const { options } = deps;
  const { socket } = connection;
  const pending = new PendingCaller(socket, deps.unauthenticatedMemory);
  const facts = {
    cluster: host.tunnels,
    source: host.kind === "unix" ? undefined : connection.source,
    timeoutMs: options.connectTimeoutMs,
    idPrefix: deps.idPrefix,
    cancellation: pending.cancellation,
  };
  const record = new ConnectRecord(facts, deps);
  try {
    const bounds = { deadlineMs: Math.ceil(record.leftMs()), most: options.maxTokenVerifications };
    const caller = await authenticate(host, connection, request.headers, bounds);
    record.caller = caller.name;
    record.open = registerOpen(caller, host, connection, pending);
    record.target = shownAuthority(request.url ?? ""); // as it was asked for, even if it is no target
    const target = parseTarget(request.url);
    record.target = formatTarget(target);
    const cluster = admit(target, host, record, deps);
    if (deps.draining()) throw new CulvertError("draining", "this server is shutting down: try again");
    deps.files.requireRoom("overloaded");
    const { memory } = cluster.tunnels;
    pending.chargeTo(memory);

    const stream = await openStream(target, cluster.tunnels, record, deps);
    if (pending.cancellation.reason !== undefined) {
      stream.destroy();
      throw pending.cancellation.reason;
    }
    record.onEstablished();
    record.earlyBytes = pending.sendEarly(stream);
    await pending.establish(host.kind === "unix" ? options.establishedGapMs : 0);
    pending.release();
    memory.onConnection(CONNECTION_BYTES[host.kind]);
    // Not awaited: otherwise the request would be kept for as long as the connection.
    const totals = splice(socket, stream, {
      stallTimeoutMs: options.stallTimeoutMs,
      corkCaller: true,
      resetCaller: () => resetSocket(socket),
      pace: cluster.pace,
      memory,
    });
    void totals.then((ended) => {
      memory.onConnection(-CONNECTION_BYTES[host.kind]);
      recordEnd(ended, stream, cluster.tunnels, record, deps);
    });
  } catch (error) {
    pending.release();
    const refusal = toCulvertError(error);
    if (refusal.code === "unauthenticated") record.certificate = claimedBy(socket);
    record.onRefused(refusal);
    reply.refused(socket, refusal, challenges(host));
  }
}

/**
 * The cluster that the CONNECT goes to: the caller's own, or another one that is named by the target's host and lets
 * it. The rules and limits of both apply.
 */
function admit(target: Target, host: CallerHost, record: ConnectRecord, deps: ConnectDeps): ServedCluster {
  const own = servedCluster(host, deps);
  own.requireAdmission(target);
  const other = deps.clusters.reachedBy(host.cluster, target);
  if (other === undefined) return own;
  record.targetCluster = other.tunnels.name;
  if (record.open !== undefined) record.open.targetCluster = record.targetCluster;
  other.requireAdmission(target);
  return other;
}

/**
 * The cluster that the caller's credential belongs to. A cluster of its name that was added later has other callers.
 */
function servedCluster(host: CallerHost, { clusters }: Pick<ConnectDeps, "clusters">) {
  const cluster = clusters.get(host.cluster);
  if (cluster?.tunnels === host.tunnels) return cluster;
  throw new CulvertError("unknown_cluster", `cluster "${host.cluster}" is not served here any more`);
}

/** Until its end the CONNECT can be found by the credential of its caller, which may be revoked. */
function registerOpen(
  { proof }: Caller,
  host: CallerHost,
  { socket, source }: IncomingConnection,
  pending: PendingCaller,
): OpenConnect | undefined {
  if (proof === undefined || host.kind === "unix") return undefined;
  const open = new OpenConnect(source.address, socket, pending);
  host.open.add(proof, open);
  return open;
}

function recordEnd(
  totals: SpliceTotals,
  stream: Stream,
  cluster: ClusterTunnels,
  record: ConnectRecord,
  { draining }: ConnectDeps,
): void {
  if (record.open?.refusal !== undefined) record.onWithdrawn(totals, record.open.refusal);
  else if (totals.endedBy === "memory") record.onSpliced(totals, "stalled");
  else if (!isSessionLost(stream)) recordReset(totals, stream, record);
  else if (draining()) record.onSpliced(totals, "draining");
  else if (record.hop !== undefined) record.onSpliced(totals, "peer_lost");
  else {
    // A cluster that is not served any more has closed the tunnel itself, after its drain time.
    const isAgents = cluster.closedBecause === undefined && isClosedInOrder(stream) && record.tunnel?.leaving === true;
    record.onSpliced(isAgents ? { ...totals, error: AGENT_DRAINED } : totals, "agent_lost");
  }
}

/** An end in order, or a reset, which another server may have made for a reason of its own. */
function recordReset(totals: SpliceTotals, stream: Stream, record: ConnectRecord): void {
  const end = record.hop && hopEndOf(stream);
  if (record.hop === undefined || end === undefined) record.onSpliced(totals, undefined);
  else record.onSpliced({ ...totals, error: new Error(hopEndSentence(end, record.hop.serverId)) }, end);
}

/** An agent that ends in order first drains, and closes when nothing is open or its drain time is over. */
const AGENT_DRAINED = new Error(
  "the agent has left in order, and this was still open when its --drain-timeout was over",
);
