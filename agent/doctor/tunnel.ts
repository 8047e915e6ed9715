import { Session } from "../../shared/yamux/session.ts";
import type { Welcomed } from "./dial.ts";

/** The last bytes have so long, ms. */
const CLOSE_MS = 1_000;

/** A tunnel that carries probes and no connections of callers. */
export function probeTunnel({ link, pipe, welcome }: Welcomed) {
  const session = new Session(
    "client",
    pipe,
    // Of what the server opens before it has read our drain: RST in place of ACK has it try another agent.
    { onStream: (stream) => stream.on("error", () => {}).destroy(), onClosed: () => {} },
    { initialWindow: welcome.initialWindow },
  );
  // For a server that does not know `probe` in a hello yet.
  link.sendControl({ type: "drain", retryAfterMs: 0 });
  return { session, close: () => session.close(CLOSE_MS) };
}
