import { setTimeout as sleep } from "node:timers/promises";

/** Waits; false as soon as the signal is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return false;
  return await sleep(ms, true, { signal }).catch(() => false);
}

/**
 * Does something again and again, with this much time between one end and the next start, until the signal is aborted.
 */
export async function every(ms: number, signal: AbortSignal, task: () => unknown): Promise<void> {
  while (await pause(ms, signal)) await task();
}
