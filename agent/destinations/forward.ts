import type { Socket } from "node:net";
import { formatTarget } from "../../shared/address/target.ts";
import { CulvertError, type OutcomeCode, outcome, printable, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type SpliceTotals, splice } from "../../shared/relay/splice.ts";
import type { AgentContext } from "../context/context.ts";
import type { DestinationPort } from "../context/destinations.ts";
import { openDestination, type ServerTunnel } from "./open-destination.ts";

type Payload = Pick<SpliceTotals, "bytesUp" | "bytesDown">;
const NOTHING: Payload = { bytesUp: 0, bytesDown: 0 };
let connections = 0;

/**
 * One connection of the node to a destination of its control plane, from its acceptance to its last byte. `admits`:
 * whether connections from an address are taken. Never rejects.
 *
 * ```
 *  source ─▶ ask a server, and another one where it is away ─▶ splice ─▶ log and metrics
 *     └─────────────────────┴─▶ reset, with the reason in log and metrics
 * ```
 */
export async function forward(
  socket: Socket,
  { port, target }: DestinationPort,
  admits: (address: string) => boolean,
  tunnels: () => readonly ServerTunnel[],
  context: AgentContext,
): Promise<void> {
  const { options, log, throttledLog, files, memory, metrics } = context;
  const id = `${options.agentId}/${(++connections).toString(36)}`;
  const from = socket.remoteAddress ?? "";
  const acceptedAt = performance.now();
  let openMs: number | undefined;
  socket.on("error", ignore);
  metrics.destinations.accepted();
  const finish = (code: OutcomeCode | "ok", { bytesUp, bytesDown }: Payload, reason?: string): void => {
    metrics.destinations.finished(code, { bytesUp, bytesDown });
    const durationMs = rounded(performance.now() - acceptedAt);
    const line = { id, from, port, destination: formatTarget(target), outcome: code, openMs, durationMs, reason };
    if (openMs === undefined && code !== "ok") {
      throttledLog.write(outcome(code).level, line, "connection of the node was reset", { kind: code });
    } else log.debug({ ...line, bytesUp, bytesDown }, "connection of the node closed");
  };
  try {
    if (!admits(from)) {
      const sentence = `${from} is neither an address of this node nor in --bind-allow-source`;
      throw new CulvertError("forbidden", sentence);
    }
    files.requireRoom("agent_exhausted");
    const { stream } = await openDestination(target, id, tunnels);
    if (socket.destroyed) {
      stream.destroy();
      throw new CulvertError("caller_gone", "the connection ended before the server's answer");
    }
    openMs = rounded(performance.now() - acceptedAt);
    metrics.destinations.answered("ok", openMs);
    const { stallTimeoutMs } = options;
    const resetCaller = (): void => resetSocket(socket);
    const totals = await splice(socket, stream, { stallTimeoutMs, corkCaller: true, resetCaller, memory });
    const isLost = (stream.errored as NodeJS.ErrnoException | null)?.code === "ESESSION";
    const code = totals.endedBy === "memory" ? "stalled" : isLost ? "server_lost" : "ok";
    finish(code, totals, totals.error && printable(totals.error.message));
  } catch (error) {
    const { code, message } = toCulvertError(error);
    resetSocket(socket);
    if (openMs === undefined) metrics.destinations.answered(code, performance.now() - acceptedAt);
    finish(code, NOTHING, printable(message));
  }
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}

function ignore(): void {}
