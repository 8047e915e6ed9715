import { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { ROUND_TRIP_WITHIN_MS, type Tunnel } from "../tunnels/tunnel.ts";

/** A busy loop sends thousands of pings slowly: whoever asks for the status waits for so many times that of one agent. */
const ALL = 3;

/** Round trips, ms, of those tunnels whose agent has answered a ping just now. */
export type RoundTrips = ReadonlyMap<object, number>;

/**
 * Pings all of them: what was measured before may have gone another way, or seen no queue. A few in each turn of the
 * loop, and each has its time from its own turn on: of thousands sent at once the last would wait for the work on the others.
 */
export async function roundTripsOf(
  tunnels: Iterable<Pick<Tunnel, "roundTrip">>,
  withinMs = ROUND_TRIP_WITHIN_MS,
): Promise<RoundTrips> {
  const measured = new Map<object, number>();
  const turns = new TurnQueue();
  let isOver = false;
  const measure = async (tunnel: Pick<Tunnel, "roundTrip">) => {
    const ms = isOver ? undefined : await within(withinMs, tunnel.roundTrip());
    if (ms !== undefined) measured.set(tunnel, ms);
  };
  const all = [...tunnels].map((tunnel) => new Promise<void>((resolve) => turns.run(() => resolve(measure(tunnel)))));
  await within(ALL * withinMs, Promise.all(all));
  isOver = true;
  return measured;
}

/** `undefined`: it was not there in time. */
function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, undefined);
    void promise.then((value) => {
      clearTimeout(timer);
      resolve(value);
    });
  });
}
