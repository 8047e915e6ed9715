import type { Duplex } from "node:stream";
import { formatTarget, parseTarget, shownAuthority, type Target } from "../../shared/address/target.ts";
import { ByteQueue } from "../../shared/basics/bytes.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { HeldBytes, type MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-share.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { RequestHeader } from "../listeners/request-reader.ts";
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

/** Bytes that a caller may send before the 200; more stays unread until the target is connected. */
const MAX_EARLY_BYTES = 64 * 1024;

const MEMORY_NEEDED = "memory is short, and bytes that came before the answer held some: try again";

function ignore(): void {}

/**
 * A caller between its CONNECT and the first byte of its tunnel.
 *
 * Only reading shows that a caller has left. So its socket is read from the start: bytes that come early are kept for
 * the target, and an end means that the caller has gone. Node cannot tell a half-close from a close, and before the 200
 * no caller half-closes.
 */
export class PendingCaller {
  readonly #socket: Duplex;
  /** Cancelled when the caller has left, or its CONNECT is refused. */
  readonly cancellation = new Cancellation<CulvertError>();
  readonly #early = new ByteQueue();
  readonly #held: HeldBytes;
  #earlyBytes = 0;
  #established = false;
  /** Present after the 200, while the target's bytes wait. */
  #onSpoken: (() => void) | undefined;

  /** `memory`: the account of unauthenticated peers, until the caller is admitted. */
  constructor(socket: Duplex, memory: Pick<MemoryAccount, "hold" | "enter">) {
    this.#socket = socket;
    this.#held = new HeldBytes(memory, () => {
      this.refuse(new CulvertError("overloaded", MEMORY_NEEDED));
      this.#forget(); // at once, since others wait for this memory, and not when the refusal is written
    });
    socket.on("error", ignore); // it stays for the connection's whole life
    socket.on("readable", this.#onReadable);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
    if (socket.destroyed) this.#onEnd();
  }

  /** From now on the account of the caller's cluster is charged for what the caller sends. */
  chargeTo(memory: Pick<MemoryAccount, "hold" | "enter">): void {
    this.#held.moveTo(memory);
  }

  /**
   * Answers 200 and resolves when the target's bytes may follow: after `gapMs`, or as soon as the caller sends
   * something. Without a gap they follow at once, in a TLS record of their own. That the answer is written is not
   * waited for: if the caller has gone, it may never be (`endedByReset`).
   */
  establish(gapMs: number): Promise<void> {
    this.#established = true;
    if (gapMs === 0) {
      reply.established(this.#socket);
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      reply.established(this.#socket, () => {
        if (this.#socket.destroyed) return resolve();
        // Bytes of a caller that did not wait for the 200 do not show that the caller has read it.
        if (this.#earlyBytes === 0) {
          if (this.#socket.readableLength > 0 || this.#socket.readableEnded) return resolve();
          this.#onSpoken = () => {
            clearTimeout(timer);
            resolve();
          };
        }
        const timer = setTimeout(resolve, gapMs);
      });
    });
  }

  /** Refuses the CONNECT, whatever it waits for. Returns false if it has been answered. */
  refuse(refusal: CulvertError): boolean {
    if (this.#established) return false;
    this.cancellation.cancel(refusal);
    return true;
  }

  /** Sends the bytes that came behind the CONNECT to the target. Returns how many. */
  sendEarly(target: Duplex): number {
    for (let piece = this.#early.take(); piece !== undefined; piece = this.#early.take()) target.write(piece);
    this.#forget();
    return this.#earlyBytes;
  }

  /** Removes its listeners from the socket. */
  release(): void {
    this.#socket.off("readable", this.#onReadable);
    this.#socket.off("end", this.#onEnd);
    this.#socket.off("close", this.#onEnd);
    this.#onSpoken = undefined;
    this.#forget();
  }

  #keep(chunk: Buffer): void {
    this.#early.add(chunk);
    this.#earlyBytes += chunk.length;
    this.#held.add(chunk.length);
  }

  #forget(): void {
    this.#early.clear();
    this.#held.clear();
  }

  readonly #onReadable = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    while (this.cancellation.reason === undefined && this.#earlyBytes < MAX_EARLY_BYTES) {
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) return;
      this.#keep(chunk);
    }
  };

  readonly #onEnd = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    this.refuse(new CulvertError("caller_gone", "the caller left before the answer"));
  };
}
