import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import type { ServerOptions } from "../options/options.ts";

/** The first window of a stream when memory is short, bytes: so much an unread stream costs at each end. */
const SMALL_WINDOW = 16 * 1024;

/** The first windows of both ends of a session: `--initial-window`, and less where memory is short. */
export function firstWindows({ initialWindow }: Pick<ServerOptions, "initialWindow">): {
  readonly initialWindow: number;
  readonly freshWindow: number;
} {
  return { initialWindow: Math.min(SMALL_WINDOW, initialWindow), freshWindow: initialWindow };
}

/** The bounds of a session whose link an agent, or another server, has dialled. */
export function sessionOptions(
  options: Pick<ServerOptions, "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams">,
  pool: MemoryAccount,
): Partial<SessionOptions> {
  const { maxWindow, sessionBudget: budget, maxStreams } = options;
  return { ...firstWindows(options), maxWindow, budget, maxStreams, pool };
}
