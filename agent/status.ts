import type { Check } from "../shared/process/admin.ts";
import type { DialSlots } from "./streams/serve.ts";
import type { Uplink } from "./uplink/keep.ts";

/** The agent's readiness: how many servers it wants, and how many it has (design: "Seen from outside"). */
export function readiness(uplinks: readonly Uplink[]): Check[] {
  const connected = uplinks.filter((uplink) => uplink.connected).length;
  const draining = uplinks.some(({ state }) => state.state === "draining" || state.state === "closed");
  return [
    {
      name: "servers",
      ok: connected === uplinks.length,
      detail: `connected to ${connected}/${uplinks.length} servers`,
    },
    { name: "not-draining", ok: !draining },
  ];
}

/** What `/status` shows: the uplinks, and what each session holds. */
export function status(agentId: string, uplinks: readonly Uplink[], dials: DialSlots): unknown {
  return {
    agentId,
    pendingDials: dials.taken,
    uplinks: uplinks.map((uplink) => ({
      server: uplink.server,
      state: uplink.state.state,
      sessions: [...uplink.connections()].map(({ link, welcome, session }) => ({
        serverId: welcome.serverId,
        link: link.id,
        remote: link.remote,
        streams: session.streamCount,
        bufferedBytes: session.bufferedBytes,
        resetForMemory: session.resetForMemory,
        roundTripMs: Math.round(session.rttMs * 10) / 10,
        draining: session.draining,
      })),
    })),
  };
}
