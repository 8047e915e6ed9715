import { Session } from "../../shared/yamux/session.ts";
import { PacedPipe } from "./paced-pipe.ts";
import type { Welcomed } from "./tunnel-steps.ts";

/** The last bytes have so long, ms. */
const CLOSE_MS = 1_000;

/** What is measured. */
export interface ProbeTunnel {
  readonly session: Session;
  /** Below the session. */
  readonly pipe: PacedPipe;
}

/** A tunnel that carries probes and no connections of callers. */
export function probeTunnel({ link, pipe: whole, welcome }: Welcomed): ProbeTunnel & { close(): Promise<void> } {
  const pipe = new PacedPipe(whole, link);
  const session = new Session(
    "client",
    pipe,
    // Of what the server opens before it has read our drain: RST in place of ACK has it try another agent.
    { onStream: (stream) => stream.on("error", () => {}).destroy(), onClosed: () => {} },
    { initialWindow: welcome.initialWindow, freshWindow: welcome.freshWindow ?? 0 },
  );
  // For a server that does not know `probe` in a hello yet.
  link.sendControl({ type: "drain", retryAfterMs: 0 });
  return { session, pipe, close: () => session.close(CLOSE_MS) };
}
