import type { Socket } from "node:net";
import { Payload } from "../harness/payload.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { resettingTarget, sendPayload, sourceTarget } from "../harness/targets/plain.ts";
import { type TargetServer, type TcpTarget, tcpTarget } from "../harness/targets/tcp.ts";
import { refusedTarget, TARGETS } from "../harness/targets.ts";
import { type TransferTarget, transferTarget } from "../harness/transfer.ts";
import type { Tally } from "./tally.ts";

/**
 * Bytes that a source sends before its end: more than the kernel and culvert keep for a caller that has stopped
 * reading.
 */
export const SOURCE_BYTES = 8 * 1024 * 1024;
/** Bytes that a target reads before it resets. */
export const RESET_AFTER_BYTES = 20_000;

export interface SoakTargets extends AsyncDisposable {
  readonly echo: TcpTarget;
  readonly transfer: TransferTarget;
  /** Sends `SOURCE_BYTES` of `Payload()`. */
  readonly source: TcpTarget;
  /** Sends without end after the first byte of its caller; what is no reset is a fault. */
  readonly resetByCaller: TcpTarget;
  readonly resetting: TcpTarget;
  readonly refused: TargetServer;
  /** Connections to all of them. */
  readonly open: number;
}

export async function startTargets(tally: Tally): Promise<SoakTargets> {
  const endless = (socket: Socket) => {
    const end = peerEnd(socket);
    socket.once("end", () => socket.destroy());
    // A dial that is given up, because another agent has the connection by then, ends cleanly and without a byte.
    socket.once("data", () => {
      socket.resume();
      sendPayload(socket, new Payload(), Number.POSITIVE_INFINITY);
      void end.then((how) => {
        if (how !== "ECONNRESET") tally.fault(`a target saw "${how}" in place of its caller's reset`);
      });
    });
  };
  const [echo, transfer, source, resetByCaller, resetting] = await Promise.all([
    TARGETS.echo(),
    transferTarget(),
    sourceTarget({ bytes: SOURCE_BYTES }),
    tcpTarget(endless),
    resettingTarget(RESET_AFTER_BYTES),
  ]);
  const tcp = { echo, transfer, source, resetByCaller, resetting };
  return {
    ...tcp,
    refused: await refusedTarget(),
    get open() {
      return Object.values<TcpTarget>(tcp).reduce((sum, target) => sum + target.open, 0);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(Object.values<TcpTarget>(tcp).map((target) => target[Symbol.asyncDispose]()));
    },
  };
}
