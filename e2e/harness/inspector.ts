import { once } from "node:events";
import { WebSocket } from "ws";
import type { ManagedProcess } from "./processes.ts";

/** Options of node that the functions of this file need. */
export const INSPECTED: readonly string[] = ["--inspect=127.0.0.1:0"];

/** Has a process collect its garbage, so that its RSS is what it holds. */
export async function collectGarbage(process: ManagedProcess): Promise<void> {
  // Twice: the first collection runs finalizers, whose memory only the second one returns.
  await ask(process, ["HeapProfiler.collectGarbage", "HeapProfiler.collectGarbage"]);
}

/** Bytes that the process holds after a collection: its heap, and buffers outside it. */
export async function heldBytes(process: ManagedProcess): Promise<{ heap: number; buffers: number }> {
  const expression = "(({heapUsed: heap, arrayBuffers: buffers}) => ({heap, buffers}))(process.memoryUsage())";
  const evaluate = { method: "Runtime.evaluate", params: { expression, returnByValue: true } };
  const answers = await ask(process, ["HeapProfiler.collectGarbage", "HeapProfiler.collectGarbage", evaluate]);
  return (answers.at(-1) as { result: { result: { value: { heap: number; buffers: number } } } }).result.result.value;
}

type Command = string | { readonly method: string; readonly params: object };

async function ask(process: ManagedProcess, commands: readonly Command[]): Promise<unknown[]> {
  const line = await process.waitForLog(/ws:\/\/\S+/);
  const socket = new WebSocket(/ws:\/\/\S+/.exec(line)?.[0] ?? "");
  await once(socket, "open");
  const answers: unknown[] = [];
  for (const [id, command] of commands.entries()) {
    socket.send(JSON.stringify(typeof command === "string" ? { id, method: command } : { id, ...command }));
    const [data] = await once(socket, "message");
    answers.push(JSON.parse(String(data)));
  }
  socket.close();
  await once(socket, "close");
  return answers;
}
