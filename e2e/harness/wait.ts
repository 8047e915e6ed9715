import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** Polls until the condition is truthy and returns its value; throws with `what` when the deadline passes. */
export async function waitFor<T>(
  condition: () => T | Promise<T>,
  { deadlineMs = 15_000, everyMs = 10, what = String(condition) }: WaitOptions = {},
): Promise<NonNullable<T>> {
  const until = performance.now() + deadlineMs;
  let last: unknown;
  for (;;) {
    try {
      last = await condition();
      if (last) return last as NonNullable<T>;
    } catch (error) {
      last = error;
    }
    if (performance.now() >= until) {
      const seen = last instanceof Error ? last.message : JSON.stringify(last);
      throw new Error(`not within ${deadlineMs} ms: ${what} (last seen: ${seen})`);
    }
    await sleep(everyMs);
  }
}

/** Polls until two looks in a row show the same, which is returned: nothing moves any more. */
export async function standing<T>(figure: () => T | Promise<T>, options: WaitOptions = {}): Promise<T> {
  let last: T | undefined;
  const stands = async () => {
    const before = last;
    last = await figure();
    return before === last;
  };
  await waitFor(stands, { deadlineMs: 30_000, everyMs: 300, what: "everything to stand", ...options });
  return last as T;
}

interface WaitOptions {
  readonly deadlineMs?: number;
  readonly everyMs?: number;
  /** Of the error when the deadline passes. */
  readonly what?: string;
}

/** Whether somebody listens there, by one connection that is ended at once. */
export function takesConnections({ path, port = 0 }: { readonly path?: string; readonly port?: number }) {
  return new Promise<boolean>((resolve) => {
    const socket = path === undefined ? connect({ host: "127.0.0.1", port }) : connect({ path });
    socket.on("connect", () => {
      resolve(true);
      socket.destroy();
    });
    socket.on("error", () => resolve(false));
  });
}

/** The promise, or a rejection that says what was waited for when the deadline passes first. */
export function within<T>(promise: Promise<T>, deadlineMs: number, what: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not within ${deadlineMs} ms: ${what}`)), deadlineMs);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
