import { setTimeout as sleep } from "node:timers/promises";
import { type CallerListener, type Connection, connectThrough } from "./caller.ts";
import type { LatencyWindow, Side } from "./latency-ratio.ts";
import { TARGETS } from "./targets.ts";

/**
 * The two paths that are measured: the same target through the attacked server, and through one that nobody attacks.
 */
export interface BystanderOrder extends Readonly<Record<Side, CallerListener>> {
  readonly windows: number;
  readonly windowMs: number;
  /** Pause between two pairs of echoes, ms. */
  readonly everyMs: number;
  /** Pause between two pairs of new CONNECTs, ms. */
  readonly connectEveryMs: number;
}

export interface BystanderReport {
  readonly echoes: readonly LatencyWindow[];
  /** CONNECTs, each with its first echo. */
  readonly connects: readonly LatencyWindow[];
  /** CONNECTs that were refused, cut or not answered, each with its reason. */
  readonly failures: readonly string[];
  /** Why nothing could be measured. */
  readonly error?: string;
}

const QUESTION = Buffer.alloc(32, "q");
const SIDES = [
  ["attacked", "calm"],
  ["calm", "attacked"],
] as const;

async function echoMs(connection: Connection): Promise<number> {
  const begun = performance.now();
  await connection.send(QUESTION);
  const answer = await connection.readBytes(QUESTION.length, 30_000);
  if (!answer.equals(QUESTION)) throw new Error("the echo is not what was sent");
  return performance.now() - begun;
}

async function opened(listener: CallerListener, target: string): Promise<Connection> {
  const connection = await connectThrough(listener, target);
  if (connection.status === 200) return connection;
  connection.socket.destroy();
  throw new Error(`${connection.status} ${connection.reason}`);
}

/** Measures short echoes through two connections that stand, and new CONNECTs beside them. */
async function measure(order: BystanderOrder): Promise<BystanderReport> {
  const { windows, windowMs, everyMs, connectEveryMs } = order;
  await using target = await TARGETS.echo();
  await using attacked = await opened(order.attacked, target.address);
  await using calm = await opened(order.calm, target.address);
  const standing = { attacked, calm };
  const [echoes, connects, failures]: [LatencyWindow[], LatencyWindow[], string[]] = [[], [], []];
  const connectMs = async (side: Side): Promise<number[]> => {
    const begun = performance.now();
    try {
      await using connection = await opened(order[side], target.address);
      await echoMs(connection);
      return [performance.now() - begun];
    } catch (error) {
      failures.push(`${side}: ${(error as Error).message}`);
      return [];
    }
  };
  const began = performance.now();
  const until = began + windows * windowMs;
  /** Again and again by turns, so that what else the machine does hits both; neither side is always the second one. */
  const inPairs = async (into: LatencyWindow[], pauseMs: number, ms: (side: Side) => Promise<number[]>) => {
    for (let pair = 0; performance.now() < until; pair++) {
      const number = Math.floor((performance.now() - began) / windowMs);
      into[number] ??= { attacked: [], calm: [] };
      const window = into[number];
      for (const side of SIDES[pair % 2] as (typeof SIDES)[0]) window[side].push(...(await ms(side)));
      await sleep(pauseMs);
    }
  };
  await Promise.all([
    inPairs(echoes, everyMs, async (side) => [await echoMs(standing[side])]),
    inPairs(connects, connectEveryMs, connectMs),
  ]);
  const filled = (all: LatencyWindow[]) => all.filter((window) => window !== undefined);
  return { echoes: filled(echoes), connects: filled(connects), failures };
}

process.once("disconnect", () => process.exit(0));
process.once("message", (order: BystanderOrder) => {
  const nothing = { echoes: [], connects: [], failures: [] };
  void measure(order)
    .catch((error: Error): BystanderReport => ({ ...nothing, error: error.message }))
    .then((report) => process.send?.(report));
});
