import { shownPace } from "../shared/link/link-events.ts";
import type { Check } from "../shared/runtime/check.ts";
import type { LiveUplink, UplinkStateName } from "./context/metrics.ts";
import type { AgentOptions } from "./context/options.ts";
import type { Connection } from "./uplink/connection.ts";

type ReadinessRule = AgentOptions["readiness"];

/** How many of the `wanted` servers a rule asks for. */
const NEEDED = {
  any: () => 1,
  quorum: (wanted) => Math.floor(wanted / 2) + 1,
  all: (wanted) => wanted,
} as const satisfies Record<ReadinessRule, (wanted: number) => number>;

/** The uplinks as a whole. */
export interface UplinksSummary<U = Pick<LiveUplink, "state">> {
  readonly uplinks: readonly U[];
  readonly wanted: number;
  /** How many servers there are; `undefined`: no server knows. */
  readonly servers: number | undefined;
}

/**
 * The agent's readiness: how many servers it wants, and how many it has. A suspended uplink counts: its streams are
 * open, callers wait for it, and it closes when its grace is over. Readiness does not fall with each connection that is
 * cut.
 */
export function readiness({ uplinks, wanted, servers }: UplinksSummary, rule: ReadinessRule): Check[] {
  const count = (name: UplinkStateName): number => uplinks.filter(({ state }) => state.state === name).length;
  const connected = count("connected");
  const resuming = count("suspended");
  const needed = NEEDED[rule](wanted);
  const ok = connected + resuming >= needed;
  const being = resuming === 0 ? "" : `, resuming ${resuming}`;
  const known = servers === undefined ? "" : ` (servers: ${servers})`;
  const missing = ok ? "" : `; --readiness=${rule} needs ${needed}`;
  return [
    {
      name: "servers",
      ok,
      detail: `connected ${connected} of ${wanted} wanted${being}${known}${missing}`,
    },
    { name: "not-draining", ok: count("draining") + count("closed") === 0 },
  ];
}

/**
 * Warnings about certificate, CA and token, and why new files are not in use. They do not change readiness, because
 * servers decide about them.
 */
export function credentialCheck(warnings: readonly string[], problem?: string): Check {
  const all = problem === undefined ? warnings : [`new credentials are not usable: ${problem}`, ...warnings];
  return { name: "credentials", ok: true, detail: all.map((warning) => `warning: ${warning}`).join("; ") };
}

/** The facts of an uplink in `/status`. */
interface ShownUplink extends LiveUplink {
  readonly failure: string | undefined;
  connections(): Iterable<Connection>;
  /** `sinceMs`: when it was connected, by the monotonic clock. */
  readonly state: LiveUplink["state"] & { readonly sinceMs?: number };
}

/**
 * The answer of `/status`: the uplinks, and the memory that each session holds. JSON leaves out what is undefined: a
 * limit of the path that nobody has seen, or the time of an uplink that is not connected.
 */
export function status(
  agentId: string,
  { uplinks, wanted, servers }: UplinksSummary<ShownUplink>,
  pendingDials: number,
  memory: unknown,
): unknown {
  return {
    kind: "agent",
    agentId,
    pendingDials,
    wanted,
    servers,
    memory,
    uplinks: uplinks.map((uplink) => ({
      server: uplink.server,
      state: uplink.state.state,
      since: dateOf(uplink.state.sinceMs),
      failure: uplink.failure,
      path: { ageLimitMs: rounded(uplink.path.ageLimitMs), heldBackMs: rounded(uplink.path.heldBackMs) },
      sessions: [...uplink.connections()].map(({ link, welcome, session }) => ({
        serverId: welcome.serverId,
        link: link.id,
        remote: link.remote,
        streams: session.streamCount,
        bufferedBytes: session.bufferedBytes,
        resetForMemory: session.resetForMemory,
        roundTripMs: Math.round(session.rttMs * 10) / 10,
        pace: shownPace(link.pace),
        draining: session.draining,
      })),
    })),
  };
}

function dateOf(ms: number | undefined): Date | undefined {
  return ms === undefined ? undefined : new Date(Date.now() + ms - performance.now());
}

function rounded(ms: number | undefined): number | undefined {
  return ms && Math.round(ms);
}
