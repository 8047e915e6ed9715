import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/address/target.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { splice } from "../../shared/relay/splice.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServedCluster, ServerContext } from "../tunnels/context.ts";
import { openStream } from "../tunnels/open-stream.ts";
import { orEnd } from "../tunnels/stream-end.ts";
import type { CallerCredential } from "./authenticate.ts";
import { type CallerEnd, PendingCaller } from "./caller-end.ts";
import { ConnectRecord } from "./connect-record.ts";

/**
 * One CONNECT, from its request to its last byte. `authority`: the target as the caller has written it.
 *
 * ```
 *  authenticate ─▶ admit: cluster, target, limits ─▶ open a stream ─▶ established ─▶ splice ─▶ log line and metrics
 *       └────────────────────┴────────────────────────────┴─▶ refused, with one outcome of the table
 * ```
 */
export async function serveConnect(
  caller: CallerEnd,
  authority: string,
  credential: CallerCredential,
  context: ServerContext,
): Promise<void> {
  const { host } = credential;
  const pending = new PendingCaller(caller, context.unauthenticatedMemory);
  const record = new ConnectRecord(caller, host, pending.cancellation, context);
  try {
    const admitted = await credential.verify();
    record.beginTrace(credential.traceparent);
    record.onAuthenticated(admitted);
    const { proof } = admitted;
    if (proof !== undefined && host.kind === "tls") record.credential = host.open.join(proof, record);
    record.target = shownAuthority(authority); // as it was asked for, even if it is no target
    const target = parseTarget(authority);
    record.target = formatTarget(target);
    record.asked = target;
    const cluster = admit(target, host.tunnels, record, context);
    if (context.draining()) throw new CulvertError("draining", "this server is shutting down: try again");
    context.files.requireRoom("overloaded");
    context.audit()?.requireWritable();
    const { memory } = cluster.tunnels;
    pending.chargeTo(memory);

    const stream = await openStream(target, cluster.tunnels, record, context);
    const written = record.onAllowed();
    if (written !== undefined) await orEnd(written, () => stream.destroy());
    if (pending.cancellation.reason !== undefined) {
      stream.destroy();
      throw pending.cancellation.reason;
    }
    record.onEstablished();
    record.earlyBytes = await pending.establish(stream);
    memory.onConnection(caller.idleBytes);
    // Not awaited: otherwise the request would be kept for as long as the connection.
    const totals = splice(caller.stream, stream, {
      stallTimeoutMs: context.options.stallTimeoutMs,
      corkCaller: true,
      resetCaller: () => caller.reset(),
      pace: cluster.pace,
      memory,
    });
    void totals.then((ended) => {
      memory.onConnection(-caller.idleBytes);
      record.onEnded(ended, stream, cluster.tunnels);
    });
  } catch (error) {
    pending.release();
    const refusal = toCulvertError(error);
    record.onRefused(refusal);
    caller.refuse(refusal);
  }
}

/**
 * The cluster that the CONNECT goes to: the caller's own, or another cluster, named by the target's host, that allows
 * callers of this one. The rules and limits of both apply.
 */
function admit(
  target: Target,
  tunnels: ClusterTunnels,
  record: ConnectRecord,
  { clusters }: ServerContext,
): ServedCluster {
  const { name } = tunnels;
  const own = clusters.get(name);
  // The name may belong to a newer cluster by now; this caller is not one of its callers.
  if (own?.tunnels !== tunnels) {
    throw new CulvertError("unknown_cluster", `cluster "${name}" is not served here any more`);
  }
  own.requireAdmission(target);
  const other = clusters.reachedBy(name, target);
  if (other === undefined) return own;
  record.targetCluster = other.tunnels.name;
  other.requireAdmission(target);
  return other;
}
