import type { TLSSocket } from "node:tls";
import type { WebSocket } from "ws";
import { acceptCarrier } from "../../shared/link/accept.ts";
import type { Carrier, CarrierLost } from "../../shared/link/carrier.ts";
import type { Hello, Welcome } from "../../shared/link/control.ts";
import { Link, LinkLost, type Resumption } from "../../shared/link/link.ts";
import { silenceMs } from "../../shared/link/liveness.ts";
import { remoteOf } from "../../shared/net/source.ts";
import type { TurnQueue } from "../../shared/net/turn-queue.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { MemoryPool } from "../../shared/process/memory-pool.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import { CloseCode, HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import { TokenWatch } from "../tokens/watch.ts";
import type { Credential, ProvenToken } from "./credential.ts";
import type { Links, ResumableLink } from "./links.ts";
import type { ClusterTunnels, Place } from "./registry.ts";
import { Tunnel } from "./tunnel.ts";

export type AttachOptions = Pick<
  ServerOptions,
  | "serverId"
  | "helloTimeoutMs"
  | "keepaliveMs"
  | "linkGraceMs"
  | "replayBuffer"
  | "initialWindow"
  | "maxWindow"
  | "sessionBudget"
  | "maxStreams"
>;

export interface AttachDeps {
  readonly options: AttachOptions;
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  /** Of all agents together. */
  readonly turns: TurnQueue;
  /** What all tunnels may hold together. */
  readonly pool: MemoryPool;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** The log of those who come as often as they like. */
  readonly strangers: StrangerLog;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/** An upgraded connection of an agent. */
interface Arrival extends Credential {
  readonly remote: string;
}

/** What a hello has got: a place for a new tunnel, or the link that goes on. */
type Verdict =
  | { readonly kind: "new"; readonly place: Place; readonly entry: ResumableLink }
  | { readonly kind: "resume"; readonly entry: ResumableLink };

/**
 * One connection of an agent: the first of a tunnel, which is told here to its end, or another one for a link that is
 * there already.
 */
export async function attach(
  ws: WebSocket,
  socket: TLSSocket,
  credential: Credential,
  deps: AttachDeps,
): Promise<void> {
  const { options } = deps;
  const { identity } = credential;
  const arrival = { ...credential, remote: remoteOf(socket) };
  let verdict: Verdict | undefined;
  let greeted = false;
  try {
    const { carrier, hello, welcome } = await acceptCarrier(ws, socket, {
      helloTimeoutMs: options.helloTimeoutMs,
      keepaliveMs: options.keepaliveMs,
      turns: deps.turns,
      welcome: (words) => {
        greeted = true;
        verdict = judge(words, identity, deps);
        return welcomeTo(verdict, words, options);
      },
    });
    if (verdict?.kind === "resume") resume(carrier, hello, welcome, verdict.entry, arrival);
    else if (verdict?.kind === "new") await hold(carrier, hello, verdict, arrival, deps);
  } catch (error) {
    // Until its hello, what ends a connection is the agent's doing or the network's; later, it is a refusal or our bug.
    if (error instanceof LinkRefused || !greeted) refusedAfterUpgrade(error, arrival, deps);
    else {
      ws.terminate();
      const reason = "a fault of this server: its log has it";
      deps.metrics.agentRefused("internal", { cluster: deps.cluster.name, from: identity, reason });
      deps.log.error({ err: error, identity, remote: arrival.remote }, "agent refused");
    }
  } finally {
    if (verdict?.kind === "new") {
      verdict.place.release();
      if (verdict.entry.link === undefined) deps.links.forget(verdict.entry.id);
    }
  }
}

/** The hello's words may only agree with what the credential says (design: "Trust"). */
function judge(hello: Hello, identity: string, { cluster, links, draining }: AttachDeps): Verdict {
  if (hello.cluster !== undefined && hello.cluster !== cluster.name) {
    throw new LinkRefused({
      closeCode: CloseCode.forbidden,
      reason: `this agent's credential belongs to cluster "${cluster.name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
    });
  }
  const known = links.judge(cluster.name, hello, identity);
  if (known !== undefined) return { kind: "resume", entry: known };
  if (draining()) throw new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  const candidate = { agentId: hello.agentId, instance: hello.instance, identity };
  return { kind: "new", place: cluster.reserve(candidate), entry: links.issue(cluster.name, candidate) };
}

function welcomeTo({ entry }: Verdict, hello: Hello, options: AttachOptions): Welcome {
  return {
    type: "welcome",
    version: HANDSHAKE_VERSION,
    serverId: options.serverId,
    link: entry.id,
    token: entry.tokens.issue(hello.resume?.token),
    received: entry.link?.received ?? 0,
    keepaliveMs: options.keepaliveMs,
    graceMs: options.linkGraceMs,
    initialWindow: options.initialWindow,
  };
}

/** The tunnel notices, and tells. */
function resume(carrier: Carrier, hello: Hello, welcome: Welcome, entry: ResumableLink, arrival: Arrival): void {
  const { remote } = arrival;
  const peerReceived = hello.resume?.received ?? 0;
  try {
    const onConfirmed = () => entry.tokens.confirm(welcome.token);
    entry.link?.offer(carrier, remote, { peerReceived, named: welcome.received, onConfirmed });
    entry.onCredential?.(arrival);
  } catch (error) {
    carrier.destroy(error as Error);
    throw error;
  }
}

/** A tunnel, from its first connection to its end. */
async function hold(
  carrier: Carrier,
  { agentId, instance, software }: Hello,
  { place, entry }: Verdict & { readonly kind: "new" },
  { identity, peer, token, remote }: Arrival,
  { options, cluster, links, pool, metrics, log }: AttachDeps,
): Promise<void> {
  const agent = { agentId, instance, identity, peer, software: printable(software) };
  const { linkGraceMs: graceMs, replayBuffer: replayBytes, keepaliveMs } = options;
  const link = new Link(entry.id, remote, carrier, {
    ...{ graceMs, replayBytes, pool },
    silenceMs: silenceMs(keepaliveMs),
  });
  entry.link = link;
  const line = { cluster: cluster.name, agent: agentId, tunnel: entry.id, remote };
  const tunnel = new Tunnel(
    agent,
    link,
    {
      onSuspended: (cause) => onSuspended(cause),
      onResumed: (resumption) => onResumed(resumption),
      onClosed: () => links.forget(entry.id),
    },
    {
      initialWindow: options.initialWindow,
      maxWindow: options.maxWindow,
      budget: options.sessionBudget,
      pool,
      maxStreams: options.maxStreams,
    },
  );
  place.hold(tunnel);
  metrics.tunnelOpened(cluster.name);
  log.info({ ...line, identity, software: agent.software }, "tunnel opened");
  const watch =
    token && watchToken(token, tunnel, (reason, detail) => log.warn({ ...line, reason, detail }, "token not judged"));
  entry.onCredential = ({ token: fresh }) => fresh && watch?.renewed(fresh.text, fresh.identity);

  const reason = await tunnel.closedWith;
  watch?.close();
  if (reason instanceof LinkLost) metrics.links.graceOver(reason.graceMs);
  metrics.tunnelClosed(cluster.name, reason === undefined ? "closed" : "lost", tunnel.resetForMemory);
  log[reason === undefined ? "info" : "warn"](
    { ...line, ...(reason && { reason: printable(reason.message) }) },
    reason === undefined ? "tunnel closed" : "tunnel lost",
  );

  function onSuspended({ lossCause, message, ageMs, idleMs }: CarrierLost): void {
    metrics.links.suspended(lossCause);
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    const { streamCount: streams } = tunnel;
    log.warn(
      { ...line, remote: tunnel.remote, streams, cause: lossCause, reason: printable(message), ...times },
      "tunnel suspended",
    );
    if (place.abandoned) tunnel.destroy(new Error("the agent has begun anew"));
  }

  function onResumed(resumption: Resumption): void {
    const { suspendedMs, replayedBytes } = resumption;
    metrics.links.resumed(resumption);
    cluster.tunnelResumed();
    const times = { suspendedMs: Math.round(suspendedMs), replayedBytes };
    log.info({ ...line, remote: tunnel.remote, ...times }, suspendedMs === 0 ? "tunnel moved" : "tunnel resumed");
  }
}

/** How often the token behind a tunnel is judged again, ms; and how long an agent that is asked for a fresh one may take. */
const JUDGE_EVERY_MS = 60_000;
const PATIENCE_MS = 10_000;

function watchToken(
  { text, identity, verifier }: ProvenToken,
  tunnel: Tunnel,
  onUnavailable: (reason: string, detail: string) => void,
): TokenWatch {
  const owner = {
    onAsk: (reason: string) => tunnel.rotate(reason),
    onCut: (reason: string) => tunnel.destroy(new Error(reason)),
    onUnavailable,
  };
  return new TokenWatch(text, identity, owner, { verifier, everyMs: JUDGE_EVERY_MS, patienceMs: PATIENCE_MS });
}

/** Close codes of resumes that were refused, in words of a metric. */
const RESUME_REFUSALS: Readonly<Record<number, string>> = {
  [CloseCode.unknownLink]: "unknown_link",
  [CloseCode.foreignLink]: "foreign_link",
  [CloseCode.badToken]: "bad_token",
  [CloseCode.linkOfAnother]: "link_of_another",
  [CloseCode.badOffset]: "bad_offset",
};

function refusedAfterUpgrade(
  error: unknown,
  { remote, identity }: Arrival,
  { cluster, metrics, log, strangers }: AttachDeps,
): void {
  const refusal = error instanceof LinkRefused ? error : undefined;
  const reason = printable(refusal?.reason ?? (error instanceof Error ? error.message : String(error)));
  metrics.agentRefused(String(refusal?.closeCode ?? "hello"), { cluster: cluster.name, from: identity, reason });
  const line = { remote, cluster: cluster.name, identity, code: refusal?.closeCode, reason };
  const resumeRefusal = RESUME_REFUSALS[refusal?.closeCode ?? 0];
  if (resumeRefusal === undefined) {
    log.warn(line, "agent refused");
    return;
  }
  metrics.links.resumeFailed(resumeRefusal);
  // An agent whose link is over may ask for it several times a second, and there are many agents.
  strangers.tell("warn", line, "resume refused");
}
