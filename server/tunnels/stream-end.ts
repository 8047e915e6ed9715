import type { Duplex } from "node:stream";
import { Stream } from "../../shared/yamux/stream.ts";

/** Whether a stream has ended because its session was lost, and not because the target has reset it. */
export function isSessionLost(stream: Duplex): boolean {
  return (stream.errored as NodeJS.ErrnoException | null)?.code === "ESESSION";
}

/** Whether a stream's session was closed by one of its ends, and nothing has gone wrong. */
export function isClosedCleanly(stream: Duplex): boolean {
  return stream.errored?.cause === undefined;
}

/** Waits for `AuditTrail.written`; where the decision cannot be written, `end` ends what was opened for it. */
export async function orEnd(written: Promise<void> | undefined, end: () => void): Promise<void> {
  try {
    await written;
  } catch (error) {
    end();
    throw error;
  }
}

/** Why another server has reset a stream, if it was neither the target nor the caller. */
export type HopEnd = "agent_lost" | "draining" | "stalled";

/** The codes of resets between servers; other versions may have more. */
const CODES = { agent_lost: 1, draining: 2, stalled: 3 } as const satisfies Record<HopEnd, number>;

/** The code of a reset, for the server that the caller came to; 0: the target has reset the connection. */
export function hopResetCode(end: HopEnd | undefined): number {
  return end === undefined ? 0 : CODES[end];
}

/** The reason that another server gave when it reset this stream. */
export function hopEndOf(stream: Duplex): HopEnd | undefined {
  if (!(stream instanceof Stream)) return undefined;
  const { resetCode } = stream;
  return (Object.keys(CODES) as HopEnd[]).find((end) => CODES[end] === resetCode);
}

/** Why the connection has ended, for the log of the server that the caller came to. */
export function hopEndSentence(end: HopEnd, serverId: string): string {
  switch (end) {
    case "agent_lost":
      return `server "${serverId}" has lost the connection to the agent`;
    case "draining":
      return `server "${serverId}" has shut down, and this was still open when its --drain-timeout was over`;
    case "stalled":
      return `server "${serverId}" needed the memory that this connection held for a reader that had stopped`;
  }
}
