import { isIP } from "node:net";
import * as z from "zod";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode, toCulvertError } from "../../shared/outcomes.ts";
import type { OpenTimes } from "../../shared/wire/stream-head.ts";
import type { AuditedFacts } from "../audit/audit-trail.ts";
import type { Choice } from "../tunnels/candidates.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { isHop, openStream, type StreamRequest } from "../tunnels/open-stream.ts";
import type { ServerHop } from "../tunnels/peer-finder.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";

/** `server`: cluster, rules and agent; `link`: until the agent has accepted the stream; `dns`, `dial`: at the agent. */
type CheckStepName = "server" | "link" | "dns" | "dial";

interface CheckStep {
  readonly step: CheckStepName;
  /** `running`: of a check that is not over. */
  readonly state: "passed" | "failed" | "skipped" | "running" | "not reached";
  readonly ms?: number;
  readonly detail: string;
}

/** The result of one test connection, step by step. */
export interface ConnectCheck {
  readonly cluster: string;
  readonly target: string;
  readonly outcome: OutcomeCode | "ok";
  /** For a person. */
  readonly sentence: string;
  readonly steps: readonly CheckStep[];
}

const requestSchema = z.object({ cluster: z.string().max(253), target: z.string().max(300) });

/** How long a target may take to close after the server has ended the test connection, ms. */
const LINGER_MS = 1_000;
const ID = "doctor";

/** Moments of a test connection by `performance.now()`, and what was learned from the agent. */
interface Progress {
  readonly startedAt: number;
  /** Called when it has come further. */
  onStep(): void;
  pickedAt?: number | undefined;
  /** The tunnel, or the other server, that was asked. */
  way?: Tunnel | ServerHop | undefined;
  /** Why it was chosen, where agents are chosen by what they serve. */
  choice?: Choice | undefined;
  /** Why the first agent was not used, if `tunnel` is the second. */
  before?: CulvertError | undefined;
  acceptedAt?: number | undefined;
  answeredAt?: number;
  times?: OpenTimes;
  address?: string;
}

/**
 * Opens one connection as a caller of the cluster would, and ends it at once (`culvert doctor --from-server`, and the
 * page at `/ui/`). `onProgress` gets the steps whenever it has come further.
 */
export async function checkConnect(
  body: unknown,
  context: ServerContext,
  onProgress?: (steps: readonly CheckStep[]) => void,
): Promise<ConnectCheck> {
  const { cluster = "", target = "" } = requestSchema.safeParse(body).data ?? {};
  const onStep = () => onProgress?.(stepsOf(progress, target, "running", performance.now()));
  const progress: Progress = { startedAt: performance.now(), onStep };
  let refusal: CulvertError | undefined;
  try {
    await openAndEnd(cluster, parseTarget(target), progress, context);
  } catch (error) {
    refusal = toCulvertError(error);
  }
  const steps = stepsOf(progress, target, refusal, performance.now());
  const outcome = refusal?.code ?? "ok";
  const { way } = progress;
  const agent = agentOn(way);
  const peer = way && isHop(way) ? way.serverId : undefined;
  const line = { cluster, target, agent, peer, ...progress.choice, outcome, reason: refusal?.message };
  context.log.info(line, "connection checked for an operator");
  audit({ cluster, target, address: progress.address, agent, peer }, refusal, context);
  const sentence =
    refusal?.message ??
    `${target} of cluster "${cluster}" is reached, through agent "${agent}"${peer === undefined ? "" : ` of server "${peer}"`}`;
  return { cluster, target, outcome, sentence, steps };
}

/** Writes the check into the audit trail, without a name: everybody who reaches the admin port may ask. */
function audit(
  facts: Omit<AuditedFacts, "kind" | "by" | "connection">,
  refusal: CulvertError | undefined,
  context: ServerContext,
): void {
  const trail = context.audit();
  const all = { kind: "connect", by: {}, connection: ID, ...facts } as const;
  if (refusal !== undefined) trail?.refused(all, refusal.code, refusal.message);
  else trail?.ended(trail.allowed(all), { outcome: "ok", endedBy: "server", bytesUp: 0, bytesDown: 0 });
}

async function openAndEnd(name: string, target: Target, progress: Progress, context: ServerContext): Promise<void> {
  const cluster = context.clusters.get(name);
  if (cluster === undefined) throw new CulvertError("unknown_cluster", `there is no cluster "${name}" here`);
  cluster.requireAdmission(target);
  context.files.requireRoom("overloaded");
  context.audit()?.requireWritable();
  const stream = await openStream(target, cluster.tunnels, requestOf(progress, context), context);
  stream.end(); // a clean end, or the target would log a broken connection
  stream.resume();
  setTimeout(() => stream.destroy(), LINGER_MS).unref();
}

function requestOf(progress: Progress, { options }: ServerContext): StreamRequest {
  const request: StreamRequest = {
    id: ID,
    deadline: progress.startedAt + options.connectTimeoutMs,
    cancellation: new Cancellation(), // the doctor's request is not cancelled
    tunnel: undefined,
    hop: undefined,
    choice: undefined,
    watch: {
      onPicked: (way, before) => {
        const { choice } = request;
        Object.assign(progress, { way, before, choice, pickedAt: performance.now(), acceptedAt: undefined });
        progress.onStep();
      },
      onAcknowledged: () => {
        progress.acceptedAt = performance.now();
        progress.onStep();
      },
      onAnswer: (answer) => {
        progress.answeredAt = performance.now();
        if (!answer.ok) return;
        if (answer.times !== undefined) progress.times = answer.times;
        if (answer.address !== undefined) progress.address = answer.address;
      },
    },
  };
  return request;
}

function agentOn(way: Tunnel | ServerHop | undefined): string | undefined {
  return way === undefined || isHop(way) ? way?.agent : way.agent.agentId;
}

/**
 * The progress of a connection as steps: those that passed, the one that failed or is running, and those after it.
 * `ended`: with a refusal, or without one; `running`: not yet.
 */
function stepsOf(
  progress: Progress,
  target: string,
  ended: CulvertError | "running" | undefined,
  endedAt: number,
): CheckStep[] {
  const isRunning = ended === "running";
  const refusal = isRunning ? undefined : ended;
  const { startedAt, pickedAt, way, choice, before, acceptedAt, answeredAt, times, address } = progress;
  const failed = (step: CheckStepName, since: number): CheckStep => {
    const state = isRunning ? "running" : "failed";
    return { step, state, ms: rounded(endedAt - since), detail: refusal?.message ?? "" };
  };
  const notReached = (...steps: CheckStepName[]): CheckStep[] =>
    steps.map((step) => ({ step, state: "not reached", detail: "" }));
  if (pickedAt === undefined || way === undefined) {
    return [failed("server", startedAt), ...notReached("link", "dns", "dial")];
  }
  const instead = before === undefined ? "" : `, as ${before.message}`;
  const by = choice === undefined ? "" : ` by ${choice.strategy}`;
  const hops = isHop(way);
  const picked = hops
    ? `server "${way.serverId}" has agents of the cluster, says the directory${instead}`
    : `agent "${way.agent.agentId}" (${way.remote}) is picked${by}${instead}`;
  const server = passed("server", pickedAt - startedAt, picked);
  if (acceptedAt === undefined) return [server, failed("link", pickedAt), ...notReached("dns", "dial")];
  const linkMs = acceptedAt - pickedAt;
  const roundTrip = `least round trip ${leastRoundTrip(hops ? 0 : way.rttMs, linkMs).toFixed(1)} ms`;
  const link = passed("link", linkMs, `the ${hops ? "other server" : "agent"} has taken the stream; ${roundTrip}`);
  if (isRunning && answeredAt === undefined) return [server, link, failed("dns", acceptedAt), ...notReached("dial")];
  if (refusal?.code === "dial_name") return [server, link, failed("dns", acceptedAt), ...notReached("dial")];
  if (refusal !== undefined) return [server, link, dnsStep(target, refusal.code), failed("dial", acceptedAt)];
  const reached = address ?? "the target";
  const dial =
    times === undefined
      ? passed("dial", (answeredAt ?? endedAt) - acceptedAt, reached)
      : passed("dial", times.dialMs, `${reached}, from the agent`);
  return [server, link, dnsStep(target, "ok", times), dial];
}

/** The stream and its ACK took one round trip, too. `pingMs` is 0 before the first ping, which may come late. */
function leastRoundTrip(pingMs: number, linkMs: number): number {
  return pingMs === 0 ? linkMs : Math.min(pingMs, linkMs);
}

/**
 * Outcomes after the first packet of the dial, or after the agent's policy has seen the address: the name was resolved.
 */
const RESOLVED: ReadonlySet<ConnectCheck["outcome"]> = new Set([
  "ok",
  "dial_refused",
  "dial_unreachable",
  "dial_reset",
  "forbidden",
]);

/** An agent gives no times for a dial that failed, and an agent of an earlier version gives none at all. */
function dnsStep(target: string, outcome: ConnectCheck["outcome"], times?: OpenTimes): CheckStep {
  const step = "dns";
  const host = target.slice(0, target.lastIndexOf(":"));
  if (isIP(host.replace(/^\[|\]$/g, "")) !== 0) return { step, state: "skipped", detail: `${host} is an address` };
  if (times !== undefined) return passed(step, times.dnsMs, "at the agent");
  if (RESOLVED.has(outcome)) return { step, state: "passed", detail: "at the agent; its time is in the dial's" };
  return { step, state: "skipped", detail: "the agent has not told it apart from the dial" };
}

function passed(step: CheckStepName, ms: number, detail: string): CheckStep {
  return { step, state: "passed", ms: rounded(ms), detail };
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
