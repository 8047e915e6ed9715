import { shownPace } from "../shared/link/link-events.ts";
import type { Check } from "../shared/runtime/check.ts";
import type { LearnedPath, UplinkStateName } from "./context/metrics.ts";
import type { AgentOptions } from "./context/options.ts";
import type { Connection } from "./uplink/connection.ts";

type ReadinessRule = AgentOptions["readiness"];

/** How many of the `wanted` servers a rule asks for. */
const NEEDED = {
  any: () => 1,
  quorum: (wanted) => Math.floor(wanted / 2) + 1,
  all: (wanted) => wanted,
} as const satisfies Record<ReadinessRule, (wanted: number) => number>;

/** The part of an uplink that readiness uses. */
export type UplinkSummary = { readonly state: { readonly state: UplinkStateName } };

/** The uplinks as a whole. */
export interface UplinksSummary {
  readonly uplinks: readonly UplinkSummary[];
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
type ShownUplink = {
  readonly server: string;
  readonly path: LearnedPath;
  readonly failure: string | undefined;
  connections(): Iterable<Connection>;
  /** `sinceMs`: when it was connected, by the monotonic clock. */
  readonly state: UplinkSummary["state"] & { readonly sinceMs?: number };
};

/** The answer of `/status`: the uplinks, and the memory that each session holds. */
export function status(
  agentId: string,
  { uplinks, wanted, servers }: Omit<UplinksSummary, "uplinks"> & { readonly uplinks: readonly ShownUplink[] },
  pendingDials: number,
  memory: unknown,
): unknown {
  return {
    kind: "agent",
    agentId,
    pendingDials,
    wanted,
    ...(servers === undefined ? {} : { servers }),
    memory,
    uplinks: uplinks.map((uplink) => ({
      server: uplink.server,
      state: uplink.state.state,
      ...since(uplink.state.sinceMs),
      ...(uplink.failure === undefined ? {} : { failure: uplink.failure }),
      path: shownPath(uplink.path),
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

/** Only of an uplink that is connected or suspended. */
function since(sinceMs: number | undefined): { readonly since?: string } {
  if (sinceMs === undefined) return {};
  return { since: new Date(Date.now() + sinceMs - performance.now()).toISOString() };
}

/** A limit is there only when it was seen. */
function shownPath({ ageLimitMs, heldBackMs }: LearnedPath): Record<string, number> {
  return {
    ...(ageLimitMs === undefined ? {} : { ageLimitMs: Math.round(ageLimitMs) }),
    ...(heldBackMs === undefined ? {} : { heldBackMs: Math.round(heldBackMs) }),
  };
}
