import type { Duplex } from "node:stream";

/** How long a connection stays for its peer to read the answer, ms. */
const LINGER_MS = 1_000;
/** What the peer may still send meanwhile, bytes; and where it was refused for a header that is too large, since that is on its way. */
const MOST_DISCARDED = 64 * 1024;
export const REST_OF_LARGE_HEADER = 2 * 1024 * 1024;

/**
 * The last answer on a connection. Closing while unread input is there makes the kernel send RST, which may overtake the answer
 * (RFC 9112 §9.6), so a little of what still comes is read and thrown away.
 */
export function answerAndEnd(connection: Duplex, answer: string, mostDiscarded = MOST_DISCARDED): void {
  if (connection.destroyed) return;
  if (!connection.writableEnded) connection.end(answer, "latin1");
  const timer = setTimeout(() => connection.destroy(), LINGER_MS).unref();
  let discarded = 0;
  connection.on("close", () => clearTimeout(timer));
  connection.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > mostDiscarded) connection.destroy();
  });
  connection.resume();
}
