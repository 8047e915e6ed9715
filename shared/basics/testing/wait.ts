import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";
import type { TestContext } from "node:test";

/** A test that waits for longer than this fails, ms. It is for tests that hang; a busy machine never needs it. */
const DEADLINE_MS = 45_000;
/** A condition that holds soon is seen at once, and one that takes longer leaves the processor to others. */
const QUICK_POLLS = 50;
const POLL_MS = 2;

// Some tests hold the clock and the timers.
const { setImmediate: nextTurn, setTimeout: later } = globalThis;
const now = performance.now.bind(performance);

/** Resolves when the condition holds; rejects with `what` if it does not in time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string | (() => string) = String(condition),
): Promise<void> {
  const deadline = now() + DEADLINE_MS;
  for (let polls = 0; !(await condition()); polls++) {
    if (now() > deadline) throw new Error(`not within ${DEADLINE_MS} ms: ${typeof what === "string" ? what : what()}`);
    await new Promise((resolve) => (polls < QUICK_POLLS ? nextTurn(resolve) : later(resolve, POLL_MS)));
  }
}

/** Resolves with the port of loopback on which the server listens until the test ends. */
export async function listening(t: TestContext, server: Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}
