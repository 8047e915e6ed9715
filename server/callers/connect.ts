import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/address/target.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { sourceOf } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceOptions, type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import { OpenConnect } from "../tunnels/open-connects.ts";
import { type Asker, reach } from "../tunnels/open-stream.ts";
import { isClosedInOrder, isSessionLost } from "../tunnels/opening.ts";
import type { ClusterTunnels, Registry } from "../tunnels/registry.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import { Account } from "./account.ts";
import { authenticate, type Caller, callerSource, challenges, type Door } from "./authenticate.ts";
import { PendingCaller } from "./pending-caller.ts";
import * as reply from "./reply.ts";
import { route } from "./route.ts";

export type ConnectOptions = Pick<
  ServerOptions,
  | "connectTimeoutMs"
  | "dialTimeoutMs"
  | "agentAckTimeoutMs"
  | "agentWaitMs"
  | "maxJudgedAgents"
  | "maxPendingConnects"
  | "establishedGapMs"
  | "stallTimeoutMs"
>;

export interface ConnectDeps {
  readonly options: ConnectOptions;
  readonly tunnels: Registry;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  readonly throttledLog: ThrottledLog;
  /**
   * Is charged for what callers send before they are admitted. Otherwise unauthenticated peers could use up the memory
   * of a cluster.
   */
  readonly unauthenticatedMemory: Pick<MemoryAccount, "hold" | "enter">;
  /** May this target be asked for, now? Throws `forbidden` or `limited`. */
  mustAdmit(cluster: string, target: Target): void;
  /** How long to rest after so many bytes of this cluster; `undefined`: it has no limit. */
  paceOf(cluster: string): SpliceOptions["pace"];
  /** True from SIGTERM on. */
  draining(): boolean;
  /** Throws `overloaded` when this process has hardly a file descriptor left. */
  mustHaveFiles(): void;
}

/** What an open connection that carries nothing takes of the process, bytes, measured: its sockets, stream and objects. */
const CONNECTION_BYTES = { unix: 26 * 1024, tls: 70 * 1024 } as const;

/** One CONNECT, from request line to last byte. Each step is a file of its name. */
export async function connect(request: IncomingMessage, socket: Duplex, door: Door, deps: ConnectDeps): Promise<void> {
  const account = new Account(door.tunnels, callerSource(door, socket), deps.options.connectTimeoutMs, deps);
  const pending = new PendingCaller(socket, deps.unauthenticatedMemory);
  try {
    const bounds = { deadlineMs: Math.ceil(account.leftMs()), most: deps.options.maxJudgedAgents };
    const caller = await authenticate(door, socket, request.headers, bounds);
    account.caller = caller.name;
    track(caller, door, socket, pending, account);
    account.target = shownAuthority(request.url ?? ""); // what was asked for, also if it is none
    const target = parseTarget(request.url);
    account.target = formatTarget(target);
    const cluster = deps.tunnels.cluster(route(caller, deps.tunnels));
    // Gone, and another one of its name is there: this door knew the old one's callers.
    if (cluster !== door.tunnels)
      throw new CulvertError("unknown_cluster", `cluster "${cluster.name}" is another one now`);
    deps.mustAdmit(cluster.name, target);
    if (deps.draining()) throw new CulvertError("draining", "this server is shutting down: try again");
    deps.mustHaveFiles();
    pending.admitted(cluster.memory);

    const { stream, tunnel } = await reach(target, cluster, askerOf(pending, account), deps);
    if (account.open?.refusal !== undefined) {
      stream.destroy();
      throw account.open.refusal;
    }
    account.onEstablished();
    account.early = pending.sendEarly(stream);
    await pending.establish(door.kind === "unix" ? deps.options.establishedGapMs : 0);
    pending.release();
    cluster.memory.onConnection(CONNECTION_BYTES[door.kind]);
    // Not awaited: the request is not to be kept for as long as the connection.
    const totals = splice(socket, stream, {
      stallTimeoutMs: deps.options.stallTimeoutMs,
      corkCaller: true,
      resetCaller: () => resetSocket(socket),
      pace: deps.paceOf(cluster.name),
      memory: cluster.memory,
    });
    void totals.then((ended) => {
      cluster.memory.onConnection(-CONNECTION_BYTES[door.kind]);
      tellEnd(ended, stream, tunnel, cluster, account, deps);
    });
  } catch (error) {
    pending.release();
    const refusal = toCulvertError(error);
    if (refusal.code === "unauthenticated") account.certificate = claimedBy(socket);
    account.onRefused(refusal);
    reply.refused(socket, refusal, challenges(door)); // reads OUTCOMES; writes one status line, or destroys
  }
}

/** From here to its end it is known by what it was admitted by: that may come to count no more. */
function track({ proof }: Caller, door: Door, socket: Duplex, pending: PendingCaller, account: Account): void {
  if (proof === undefined || door.kind === "unix") return;
  account.open = new OpenConnect(sourceOf(socket as Socket).address, socket, pending);
  door.open.add(proof, account.open);
}

function askerOf(pending: PendingCaller, account: Account): Asker {
  return {
    id: account.id,
    leftMs: () => account.leftMs(),
    during: (step) => pending.during(step),
    onPicked: ({ agent }) => {
      account.agent = agent.agentId;
    },
  };
}

function tellEnd(
  totals: SpliceTotals,
  stream: Stream,
  tunnel: Tunnel,
  cluster: ClusterTunnels,
  account: Account,
  deps: ConnectDeps,
): void {
  if (account.open?.refusal !== undefined) account.onWithdrawn(totals, account.open.refusal);
  else if (totals.endedBy === "memory") account.onSpliced(totals, "stalled");
  else if (!isSessionLost(stream)) account.onSpliced(totals, undefined);
  else if (deps.draining()) account.onSpliced(totals, "draining");
  else {
    // Where the cluster is not served any more, the time was ours.
    const isAgents = cluster.closedBecause === undefined && isClosedInOrder(stream) && tunnel.leaving;
    account.onSpliced(isAgents ? { ...totals, error: DRAINED } : totals, "agent_lost");
  }
}

/** Who leaves in order says so first, and ends when nothing is open or the time for that is over. */
const DRAINED = new Error("the agent has left in order, and this was still open when its --drain-timeout was over");
