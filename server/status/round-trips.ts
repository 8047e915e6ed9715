import type { Tunnel } from "../tunnels/tunnel.ts";

/** How long agents may take to answer whoever asks for the status, ms. */
const WITHIN_MS = 1_000;

/** Round trips, ms, of those tunnels whose agent has answered a ping just now. */
export type RoundTrips = ReadonlyMap<object, number>;

/** Pings all of them at once: what was measured before may have gone another way, or seen no queue. */
export async function roundTripsOf(
  tunnels: Iterable<Pick<Tunnel, "roundTrip">>,
  withinMs = WITHIN_MS,
): Promise<RoundTrips> {
  const measured = new Map<object, number>();
  const all = [...tunnels].map(async (tunnel) => {
    const ms = await tunnel.roundTrip();
    if (ms !== undefined) measured.set(tunnel, ms);
  });
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, withinMs);
    void Promise.all(all).then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
  return measured;
}
