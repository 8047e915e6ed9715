import type { Duplex } from "node:stream";

/** How long a connection stays for its peer to read the answer, ms. */
const LINGER_MS = 1_000;
/**
 * The same where more than this waits unread already, bytes: nobody but a flood sends so much behind what is refused.
 */
const SURPLUS = 16 * 1024;
const LINGER_OF_SURPLUS_MS = 250;
/**
 * What the peer may still send meanwhile, bytes; and where it was refused for a header that is too large, since that is
 * on its way.
 */
const MOST_DISCARDED = 64 * 1024;
export const REST_OF_LARGE_HEADER = 2 * 1024 * 1024;

/**
 * The last answer on a connection. Closing while unread input is there makes the kernel send RST, which may overtake
 * the answer (RFC 9112 §9.6), so a little of what still comes is read and thrown away.
 */
export function answerAndEnd(connection: Duplex, answer: string | Buffer, mostDiscarded = MOST_DISCARDED): void {
  if (connection.destroyed) return;
  if (!connection.writableEnded) connection.end(answer, "latin1");
  const isFlood = mostDiscarded === MOST_DISCARDED && connection.readableLength > SURPLUS;
  const timer = setTimeout(() => connection.destroy(), isFlood ? LINGER_OF_SURPLUS_MS : LINGER_MS).unref();
  connection.on("close", () => clearTimeout(timer));
  if (isFlood) return; // reading it away would cost more than anything else in a flood does
  let discarded = 0;
  connection.on("data", (chunk: Buffer) => {
    discarded += chunk.length;
    if (discarded > mostDiscarded) connection.pause(); // to close now would be that RST; TCP holds the peer back
  });
  connection.resume();
}
