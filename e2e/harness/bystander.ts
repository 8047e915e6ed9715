import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";
import type { BystanderOrder, BystanderReport } from "./bystander-process.ts";
import type { CallerListener } from "./caller.ts";
import { type LatencyRatio, latencyRatio } from "./latency-ratio.ts";

/** The listener of an honest tenant's callers, and its like at a second server that nobody attacks. */
export interface Listeners {
  readonly blueListener: CallerListener;
  readonly calmListener: CallerListener;
}

interface MeasureOptions {
  /** Whose callers are honest, if not blue's. */
  readonly listener?: CallerListener;
  readonly windows?: number;
  /** Pause between two new CONNECTs, ms. */
  readonly connectEveryMs?: number;
  /** How much longer than that it may take, ms; by default nothing. */
  readonly plusMs?: number;
}

/**
 * Beside peers without a credential: their connections and requests come without limit, and each costs a turn of the
 * event loop that all tenants share. Such turns are bounded in length and not in number: they may cost 5 ms beside the
 * factor.
 */
export const BESIDE_ANYBODY: MeasureOptions = { plusMs: 5 };

/** How many times as long an echo, or a CONNECT with its first echo, may take through the attacked server. */
const MOST_RATIO = 2;
const WINDOW_MS = 500;

/**
 * Compares an honest tenant's latency during an attack with its latency, at the same time, through an idle server:
 * short echoes through two open connections, and new CONNECTs beside them. Other work of the machine affects both. A
 * separate process measures and is the target: an attack in the process of the test continues whenever the attacked
 * server has read something, which is also when that server's echoes arrive, so it delayed these more than the others.
 *
 * p99 through the attacked server is to be at most twice that through the idle one. A ratio fails that is above 2 and
 * not by chance (`latencyRatio`). Returns what was seen, for a diagnostic line.
 */
export async function assertUnharmed(listeners: Listeners, options: MeasureOptions = {}): Promise<string> {
  const { listener = listeners.blueListener, windows = 12, connectEveryMs = 12, plusMs = 0 } = options;
  const { echoes, connects, failures, error } = await measured({
    ...{ attacked: listener, calm: listeners.calmListener },
    ...{ windows, windowMs: WINDOW_MS, everyMs: 2, connectEveryMs },
  });
  assert.equal(error, undefined, "the honest tenant can be measured");
  assert.deepEqual(failures, [], "each CONNECT of the honest tenant is answered");
  const ratios = { echo: latencyRatio(echoes, plusMs), CONNECT: latencyRatio(connects, plusMs) };
  const seen = Object.entries(ratios)
    .map(([what, ratio]) => `${what} ${shown(ratio)}${plusMs > 0 ? ` beside ${plusMs} ms` : ""}`)
    .join("; ");
  for (const [what, { atLeast }] of Object.entries(ratios)) {
    assert.ok(
      atLeast <= MOST_RATIO,
      `${what} takes more than ${MOST_RATIO} × as long as through an idle server: ${seen}`,
    );
  }
  return seen;
}

/** By a process of its own. */
async function measured(order: BystanderOrder): Promise<BystanderReport> {
  const script = fileURLToPath(source("bystander-process.ts", import.meta.url));
  const child = fork(script, { execArgv: [...RUN_SOURCES] });
  return await new Promise<BystanderReport>((resolve, reject) => {
    child.on("message", resolve);
    child.on("error", reject);
    child.on("exit", (code, signal) => reject(new Error(`the bystander ended (${signal ?? code})`)));
    child.send(order);
  }).finally(() => child.kill("SIGKILL"));
}

function shown({ percentile, attacked, calm, ratio, atLeast }: LatencyRatio): string {
  const ms = `p${Math.round(percentile)} ${calm.toFixed(1)} ms idle, ${attacked.toFixed(1)} ms attacked`;
  return `${ms}, ${ratio.toFixed(2)} × (at least ${atLeast.toFixed(2)})`;
}
