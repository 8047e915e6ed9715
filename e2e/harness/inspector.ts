import { on, once } from "node:events";
import { WebSocket } from "ws";
import { type ManagedProcess, ON_BUN } from "./processes.ts";

/** Options of node that the functions of this file need. */
export const INSPECTED: readonly string[] = ["--inspect=127.0.0.1:0"];

/** V8's name, and JavaScriptCore's. */
const COLLECT = ON_BUN ? "Heap.gc" : "HeapProfiler.collectGarbage";

/**
 * JavaScriptCore counts compiled code in its heap, and an agent has 2 to 4 MiB more of it after an hour than after two
 * minutes. A debugger that comes and goes has it throw all of that away.
 */
const DISCARD_CODE = ON_BUN ? ["Debugger.enable", "Debugger.disable"] : [];

/** Has a process collect its garbage, so that its RSS is what it holds. */
export async function collectGarbage(process: ManagedProcess): Promise<void> {
  // Twice: the first collection runs finalizers, whose memory only the second one returns.
  await ask(process, [COLLECT, COLLECT]);
}

/** Bytes that the process holds after a collection: its heap without compiled code, and buffers outside it. */
export async function heldBytes(process: ManagedProcess): Promise<{ heap: number; buffers: number }> {
  // Bun counts buffers in `heapUsed`, and has 0 for `arrayBuffers`.
  const expression = "(({heapUsed: heap, arrayBuffers: buffers}) => ({heap, buffers}))(process.memoryUsage())";
  const evaluate = { method: "Runtime.evaluate", params: { expression, returnByValue: true } };
  const answers = await ask(process, [...DISCARD_CODE, COLLECT, COLLECT, evaluate]);
  return (answers.at(-1) as { result: { result: { value: { heap: number; buffers: number } } } }).result.result.value;
}

type Command = string | { readonly method: string; readonly params: object };

async function ask(process: ManagedProcess, commands: readonly Command[]): Promise<unknown[]> {
  const line = await process.waitForLog(/ws:\/\/\S+/);
  const socket = new WebSocket(/ws:\/\/\S+/.exec(line)?.[0] ?? "");
  await once(socket, "open");
  const messages = on(socket, "message");
  const answers: unknown[] = [];
  for (const [id, command] of commands.entries()) {
    socket.send(JSON.stringify(typeof command === "string" ? { id, method: command } : { id, ...command }));
    const answer = await answerTo(id, messages);
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

async function answerTo(id: number, messages: AsyncIterator<unknown[]>): Promise<{ error?: { message: string } }> {
  for (;;) {
    const { value } = await messages.next();
    const message = JSON.parse(String(value[0]));
    if (message.id === id) return message; // the others are events
  }
}
