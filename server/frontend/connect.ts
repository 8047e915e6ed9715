import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { resetSocket } from "../../shared/net/reset.ts";
import { type SpliceOptions, type SpliceTotals, splice } from "../../shared/net/splice.ts";
import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/net/target.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import { isClosedInOrder, isSessionLost } from "../tunnels/opening.ts";
import type { ClusterTunnels, Registry } from "../tunnels/registry.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import { Account } from "./account.ts";
import { authenticate, callerSource, challenges, type Door } from "./authenticate.ts";
import { PendingCaller } from "./pending.ts";
import * as reply from "./reply.ts";
import { route } from "./route.ts";

export type ConnectOptions = Pick<
  ServerOptions,
  | "connectTimeoutMs"
  | "dialTimeoutMs"
  | "agentAckTimeoutMs"
  | "agentWaitMs"
  | "maxPendingConnects"
  | "establishedGapMs"
  | "stallTimeoutMs"
>;

export interface ConnectDeps {
  readonly options: ConnectOptions;
  readonly tunnels: Registry;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  readonly strangers: StrangerLog;
  /** May this target be asked for, now? Throws `forbidden` or `limited`. */
  mustAdmit(cluster: string, target: Target): void;
  /** How long to rest after so many bytes of this cluster; `undefined`: it has no limit. */
  paceOf(cluster: string): SpliceOptions["pace"];
  /** True from SIGTERM on. */
  draining(): boolean;
  /** Throws `overloaded` when this process has hardly a file descriptor left. */
  mustHaveFiles(): void;
}

/** One CONNECT, from request line to last byte. Each step is a file of its name. */
export async function connect(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  door: Door,
  deps: ConnectDeps,
): Promise<void> {
  const account = new Account(callerSource(door, socket), deps.options.connectTimeoutMs, deps);
  const pending = new PendingCaller(socket, head);
  account.cluster = door.cluster; // whoever comes through this door asks for this cluster
  try {
    const caller = await authenticate(door, socket, request.headers, (judge) =>
      counted(door.tunnels, deps.options.maxPendingConnects, () =>
        judge(AbortSignal.timeout(Math.ceil(account.leftMs()))),
      ),
    );
    account.caller = caller.name;
    account.target = shownAuthority(request.url ?? ""); // what was asked for, also if it is none
    const target = parseTarget(request.url);
    account.target = formatTarget(target);
    const cluster = deps.tunnels.cluster(route(caller, deps.tunnels));
    // Gone, and another one of its name is there: this door knew the old one's callers.
    if (cluster !== door.tunnels)
      throw new CulvertError("unknown_cluster", `cluster "${cluster.name}" is another one now`);
    account.cluster = cluster.name;
    deps.mustAdmit(cluster.name, target);
    if (deps.draining()) throw new CulvertError("draining", "this server is shutting down: try again");
    deps.mustHaveFiles();

    const { stream, tunnel } = await openStream(target, cluster, pending, account, deps);
    account.onEstablished();
    account.early = pending.sendEarly(stream);
    await pending.establish(door.kind === "unix" ? deps.options.establishedGapMs : 0);
    pending.release();
    const totals = join(socket, stream, deps.options.stallTimeoutMs, deps.paceOf(cluster.name));
    void totals.then((ended) => tellEnd(ended, stream, tunnel, cluster, account, deps));
  } catch (error) {
    pending.release();
    const refusal = toCulvertError(error);
    account.onRefused(refusal);
    reply.refused(socket, refusal, challenges(door)); // reads OUTCOMES; writes one status line, or destroys
  }
}

/** A CONNECT that waits for the judge of its token waits for an answer like any other. */
async function counted<T>(cluster: ClusterTunnels, most: number, step: () => Promise<T>): Promise<T> {
  mustHaveRoom(cluster, most);
  cluster.pendingConnects++;
  try {
    return await step();
  } finally {
    cluster.pendingConnects--;
  }
}

function mustHaveRoom({ pendingConnects }: ClusterTunnels, most: number): void {
  if (pendingConnects < most) return;
  throw new CulvertError(
    "overloaded",
    `too many CONNECTs wait for an answer (${pendingConnects}, --max-pending-connects): try again`,
  );
}

/** Bytes, to the end of both directions. Not awaited: the request is not to be kept for as long as the connection. */
function join(socket: Duplex, stream: Stream, stallTimeoutMs: number, pace: SpliceOptions["pace"]) {
  const resetCaller = () => resetSocket(socket);
  return splice(socket, stream, { stallTimeoutMs, corkCaller: true, resetCaller, pace });
}

function tellEnd(
  totals: SpliceTotals,
  stream: Stream,
  tunnel: Tunnel,
  cluster: ClusterTunnels,
  account: Account,
  deps: ConnectDeps,
): void {
  if (!isSessionLost(stream)) account.onSpliced(totals, undefined);
  else if (deps.draining()) account.onSpliced(totals, "draining");
  else {
    // Where the cluster is not served any more, the time was ours.
    const isAgents = cluster.closedBecause === undefined && isClosedInOrder(stream) && tunnel.leaving;
    account.onSpliced(isAgents ? { ...totals, error: DRAINED } : totals, "agent_lost");
  }
}

/** Who leaves in order says so first, and ends when nothing is open or the time for that is over. */
const DRAINED = new Error("the agent has left in order, and this was still open when its --drain-timeout was over");

interface Opened {
  readonly stream: Stream;
  readonly tunnel: Tunnel;
}

/**
 * The stream to the target: over the best tunnel, or over a second one if the first did not even take it. Where the only one
 * is over, because its agent is lost or begins anew, whoever comes next is waited for: a moment later this CONNECT would have.
 */
async function openStream(
  target: Target,
  cluster: ClusterTunnels,
  pending: PendingCaller,
  account: Account,
  { options, metrics, draining }: ConnectDeps,
): Promise<Opened> {
  mustHaveRoom(cluster, options.maxPendingConnects);
  cluster.pendingConnects++;
  metrics.pendingOpens(1);
  try {
    const first = cluster.pick() ?? (await next());
    try {
      return await openOver(first);
    } catch (error) {
      if (!retryable(error) || account.leftMs() <= 0) throw error;
      const isOver = first.closed || first.leaving;
      const mayCome = isOver && !draining() && cluster.closedBecause === undefined;
      const second = cluster.pick(first) ?? (mayCome ? await next().catch(orCallerGone(error)) : undefined);
      if (second === undefined) throw error;
      return await openOver(second);
    }
  } finally {
    cluster.pendingConnects--;
    metrics.pendingOpens(-1);
  }

  function next(): Promise<Tunnel> {
    const waitMs = Math.min(patienceMs(cluster, options), account.leftMs());
    return pending.during(cluster.whenAvailable(waitMs));
  }

  async function openOver(tunnel: Tunnel): Promise<Opened> {
    account.agent = tunnel.agent.agentId;
    const stream = await pending.during(
      tunnel.open(target, {
        id: account.id,
        timeoutMs: account.leftMs(),
        dialTimeoutMs: options.dialTimeoutMs,
        ackTimeoutMs: options.agentAckTimeoutMs,
        hasAlternative: () => cluster.pick(tunnel) !== undefined,
        whenAvailable: () => cluster.whenAvailable(account.leftMs()),
      }),
    );
    return { stream, tunnel };
  }
}

/**
 * An agent that has only lost its connection is worth half of the time: the other half is for the dial when it comes back
 * late, and kubectl, which may ask twice, tells its user why after the whole of it.
 */
function patienceMs(cluster: ClusterTunnels, { agentWaitMs, connectTimeoutMs }: ConnectDeps["options"]): number {
  return cluster.expected === undefined ? agentWaitMs : Math.max(agentWaitMs, connectTimeoutMs / 2);
}

/** Nobody has come: what has happened before says more, but for a caller that has left meanwhile. */
function orCallerGone(before: unknown): (error: unknown) => never {
  return (error) => {
    throw toCulvertError(error).code === "caller_gone" ? error : before;
  };
}

function retryable(error: unknown): boolean {
  return error instanceof CulvertError && error.retryable;
}
