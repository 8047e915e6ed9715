import { once } from "node:events";
import { WebSocket } from "ws";
import type { ManagedProcess } from "../harness/processes.ts";

/** Has a process that was started with `--inspect` collect its garbage, so that its RSS is what it holds. */
export async function collectGarbage(process: ManagedProcess): Promise<void> {
  const line = await process.waitForLog(/ws:\/\/\S+/);
  const socket = new WebSocket(/ws:\/\/\S+/.exec(line)?.[0] ?? "");
  await once(socket, "open");
  // Twice: the first collection runs finalizers, whose memory only the second one returns.
  for (const id of [1, 2]) {
    socket.send(JSON.stringify({ id, method: "HeapProfiler.collectGarbage" }));
    await once(socket, "message");
  }
  socket.close();
  await once(socket, "close");
}

/** Options of node that `collectGarbage` needs. */
export const INSPECTED: readonly string[] = ["--inspect=127.0.0.1:0"];
