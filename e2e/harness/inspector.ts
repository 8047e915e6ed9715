import { once } from "node:events";
import { WebSocket } from "ws";
import { type ManagedProcess, ON_BUN } from "./processes.ts";

/** Options of node that the functions of this file need. */
export const INSPECTED: readonly string[] = ["--inspect=127.0.0.1:0"];

/** V8's name, and JavaScriptCore's. */
const COLLECT = ON_BUN ? "Heap.gc" : "HeapProfiler.collectGarbage";

/** Has a process collect its garbage, so that its RSS is what it holds. */
export async function collectGarbage(process: ManagedProcess): Promise<void> {
  // Twice: the first collection runs finalizers, whose memory only the second one returns.
  await ask(process, [COLLECT, COLLECT]);
}

/** Bytes that the process holds after a collection: its heap, and buffers outside it. */
export async function heldBytes(process: ManagedProcess): Promise<{ heap: number; buffers: number }> {
  // Bun counts buffers in `heapUsed`, and has 0 for `arrayBuffers`.
  const expression = "(({heapUsed: heap, arrayBuffers: buffers}) => ({heap, buffers}))(process.memoryUsage())";
  const evaluate = { method: "Runtime.evaluate", params: { expression, returnByValue: true } };
  const answers = await ask(process, [COLLECT, COLLECT, evaluate]);
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
    const answer = JSON.parse(String(data)) as { error?: { message: string } };
    if (answer.error !== undefined) {
      socket.terminate();
      throw new Error(`the inspector of ${process.pid}: ${answer.error.message}`);
    }
    answers.push(answer);
  }
  socket.close();
  await once(socket, "close");
  return answers;
}
