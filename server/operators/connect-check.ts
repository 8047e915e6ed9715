import { isIP } from "node:net";
import { z } from "zod";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { type CulvertError, type OutcomeCode, toCulvertError } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { OpenTimes } from "../../shared/wire/stream-head.ts";
import { type Asker, type ReachDeps, reach } from "../tunnels/open-stream.ts";
import type { Registry } from "../tunnels/registry.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";

export interface TrialDeps extends ReachDeps {
  readonly tunnels: Pick<Registry, "cluster">;
  readonly log: Logger;
  /** As for a caller's CONNECT. */
  mustAdmit(cluster: string, target: Target): void;
  mustHaveFiles(): void;
}

/** `server`: cluster, rules and agent; `link`: until the agent has taken the stream; the rest is the agent's. */
export type TrialStepName = "server" | "link" | "dns" | "dial";

export interface TrialStep {
  readonly step: TrialStepName;
  readonly state: "passed" | "failed" | "skipped" | "not reached";
  readonly ms?: number;
  readonly detail: string;
}

/** What became of one connection, step by step. */
export interface Trial {
  readonly cluster: string;
  readonly target: string;
  readonly outcome: OutcomeCode | "ok";
  /** For a person. */
  readonly sentence: string;
  readonly steps: readonly TrialStep[];
}

const askedSchema = z.object({ cluster: z.string().max(253), target: z.string().max(300) });

/** How long a target that was reached may take to see our end. */
const LINGER_MS = 1_000;
const ID = "doctor";

/** What is known of a connection while it is tried; moments by `performance.now()`. */
interface Course {
  readonly startedAt: number;
  pickedAt?: number;
  tunnel?: Tunnel;
  /** What came of the agent that was asked first, where this is the second. */
  before?: CulvertError;
  takenAt?: number;
  answeredAt?: number;
  times?: OpenTimes;
  address?: string;
}

/** One connection as a caller of the cluster would have it, ended as soon as it stands (`culvert doctor --from-server`). */
export async function tryTarget(body: unknown, deps: TrialDeps): Promise<Trial> {
  const asked = askedSchema.safeParse(body);
  const { cluster = "", target = "" } = asked.data ?? {};
  const course: Course = { startedAt: performance.now() };
  let refusal: CulvertError | undefined;
  try {
    await walk(cluster, parseTarget(target), course, deps);
  } catch (error) {
    refusal = toCulvertError(error);
  }
  const steps = stepsOf(course, target, refusal, performance.now());
  const outcome = refusal?.code ?? "ok";
  const agent = course.tunnel?.agent.agentId;
  deps.log.info({ cluster, target, agent, outcome, reason: refusal?.message }, "connection tried for the doctor");
  const sentence = refusal?.message ?? `${target} of cluster "${cluster}" is reached, through agent "${agent}"`;
  return { cluster, target, outcome, sentence, steps };
}

async function walk(name: string, target: Target, course: Course, deps: TrialDeps): Promise<void> {
  const cluster = deps.tunnels.cluster(name);
  deps.mustAdmit(name, target);
  deps.mustHaveFiles();
  const { stream } = await reach(target, cluster, askerOf(course, deps), deps);
  // In order, or the target would log a broken connection.
  stream.end();
  stream.resume();
  setTimeout(() => stream.destroy(), LINGER_MS).unref();
}

/** Who asks as a CONNECT does, and notes what it meets. */
function askerOf(course: Course, { options }: TrialDeps): Asker {
  return {
    id: ID,
    leftMs: () => options.connectTimeoutMs - (performance.now() - course.startedAt),
    during: (step) => step.promise,
    onPicked: (tunnel, before) => {
      Object.assign(course, { tunnel, before, pickedAt: performance.now(), takenAt: undefined });
    },
    watch: {
      onAcknowledged: () => {
        course.takenAt = performance.now();
      },
      onAnswer: (answer) => {
        course.answeredAt = performance.now();
        if (!answer.ok) return;
        if (answer.times !== undefined) course.times = answer.times;
        if (answer.address !== undefined) course.address = answer.address;
      },
    },
  };
}

/** The course of a connection as steps, the one that the refusal belongs to and those behind it. */
function stepsOf(course: Course, target: string, refusal: CulvertError | undefined, endedAt: number): TrialStep[] {
  const { startedAt, pickedAt, tunnel, before, takenAt, answeredAt, times, address } = course;
  const why = refusal?.message ?? "";
  const failed = (step: TrialStepName, since: number): TrialStep => {
    return { step, state: "failed", ms: rounded(endedAt - since), detail: why };
  };
  const unreached = (...steps: TrialStepName[]): TrialStep[] =>
    steps.map((step) => ({ step, state: "not reached", detail: "" }));
  if (pickedAt === undefined || tunnel === undefined) {
    return [failed("server", startedAt), ...unreached("link", "dns", "dial")];
  }
  const { agentId } = tunnel.agent;
  const instead = before === undefined ? "" : `, as ${before.message}`;
  const server = passed("server", pickedAt - startedAt, `agent "${agentId}" (${tunnel.remote}) is picked${instead}`);
  if (takenAt === undefined) return [server, failed("link", pickedAt), ...unreached("dns", "dial")];
  const linkMs = takenAt - pickedAt;
  const rtt = `least round trip ${leastRoundTrip(tunnel.rttMs, linkMs).toFixed(1)} ms`;
  const link = passed("link", linkMs, `the agent has taken the stream; ${rtt}`);
  if (refusal?.code === "dial_name") return [server, link, failed("dns", takenAt), ...unreached("dial")];
  if (refusal !== undefined) {
    return [server, link, dnsOf(target, refusal.code), failed("dial", takenAt)];
  }
  const reached = address ?? "the target";
  if (times === undefined) {
    const together = (answeredAt ?? endedAt) - takenAt;
    return [server, link, dnsOf(target, "ok"), passed("dial", together, reached)];
  }
  return [server, link, dnsOf(target, "ok", times), passed("dial", times.dialMs, `${reached}, from the agent`)];
}

/** The stream went there and its ACK came back, too; pings come seldom, and none may have come yet (0). */
function leastRoundTrip(pingMs: number, linkMs: number): number {
  return pingMs === 0 ? linkMs : Math.min(pingMs, linkMs);
}

/** Ends behind the dial's first packet, or the policy's look at an address: a name has been resolved by then. */
const RESOLVED: ReadonlySet<Trial["outcome"]> = new Set([
  "ok",
  "dial_refused",
  "dial_unreachable",
  "dial_reset",
  "forbidden",
]);

/** What is known of the name; an agent tells no time of a dial that failed, and one of an earlier version none at all. */
function dnsOf(target: string, outcome: Trial["outcome"], times?: OpenTimes): TrialStep {
  const step = "dns";
  const host = target.slice(0, target.lastIndexOf(":"));
  if (isIP(host.replace(/^\[|\]$/g, "")) !== 0) return { step, state: "skipped", detail: `${host} is an address` };
  if (times !== undefined) return passed(step, times.dnsMs, "at the agent");
  if (RESOLVED.has(outcome)) return { step, state: "passed", detail: "at the agent; its time is in the dial's" };
  return { step, state: "skipped", detail: "the agent has not told it apart from the dial" };
}

function passed(step: TrialStepName, ms: number, detail: string): TrialStep {
  return { step, state: "passed", ms: rounded(ms), detail };
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}
