import type { Dialled } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { Session } from "../../shared/yamux/session.ts";

/** The last bytes have so long, ms. */
const CLOSE_MS = 1_000;

/** A tunnel that carries probes and no connections of callers. */
export function probeTunnel({ carrier, welcome, remote }: Dialled, replayBytes: number) {
  const link = new Link(welcome.link, remote, carrier, { graceMs: 0, replayBytes });
  const session = new Session(
    "client",
    link,
    // Of what the server opens before it has read our drain: RST in place of ACK has it try another agent.
    { onStream: (stream) => stream.on("error", () => {}).destroy(), onClosed: () => {} },
    { initialWindow: welcome.initialWindow },
  );
  link.sendControl({ type: "drain", retryAfterMs: 0 });
  return { session, close: () => session.close(CLOSE_MS) };
}
