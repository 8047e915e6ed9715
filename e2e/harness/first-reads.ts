import { fork } from "node:child_process";
import { constants, setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import { type CallerListener, dialListener } from "./caller.ts";
import { inTurn } from "./in-turn.ts";
import { within } from "./wait.ts";

/** CONNECTs to a target that speaks first, by a reader in a process of its own. */
export interface FirstReadsOrder {
  readonly listener: CallerListener;
  readonly target: string;
  readonly count: number;
  readonly atOnce: number;
  /** What the target says by itself. */
  readonly banner: string;
}

/** What the first read held → how often; and what came behind it, over all reads → how often. */
export interface FirstReads {
  readonly first: Readonly<Record<string, number>>;
  readonly rest: Readonly<Record<string, number>>;
}

/** The only answer that kube-apiserver takes (design: "The caller's side", 2). */
export const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";
const DEADLINE_MS = 15_000;

/**
 * Reads like kube-apiserver, for which a byte behind the 200 in the same read is an error: the process does nothing
 * but wait for it, and so reads as soon as the kernel has something.
 */
export function firstReads(order: FirstReadsOrder): Promise<FirstReads> {
  const child = fork(fileURLToPath(import.meta.url), { execArgv: ["--import", "tsx"] });
  return new Promise<FirstReads>((resolve, reject) => {
    child.on("message", (result: FirstReads) => resolve(result));
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the reader ended (${code})`)));
    child.send(order);
  }).finally(() => child.kill("SIGKILL"));
}

/** One CONNECT: the first read, and all that follows until the banner is there. */
function read({ listener, target, banner }: FirstReadsOrder): Promise<{ first: string; rest: string }> {
  const socket = dialListener(listener);
  socket.setEncoding("latin1");
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  const done = new Promise<{ first: string; rest: string }>((resolve, reject) => {
    let first: string | undefined;
    let rest = "";
    const settle = () => resolve({ first: first ?? "", rest });
    socket.on("data", (text: string) => {
      if (first === undefined) first = text;
      else rest += text;
      if (first.length + rest.length >= ESTABLISHED.length + banner.length) settle();
    });
    socket.on("end", settle);
    socket.on("error", reject);
  });
  return within(done, DEADLINE_MS, "the banner").finally(() => socket.destroy());
}

/** On a busy machine a reader may sleep through any gap; where we are allowed to, it gets its turn before others. */
function hurry(): void {
  try {
    setPriority(constants.priority.PRIORITY_HIGHEST);
  } catch {
    // Not privileged: then only a machine with a free core shows what the reader sees.
  }
}

async function onOrder(order: FirstReadsOrder): Promise<void> {
  hurry();
  const first: Record<string, number> = {};
  const rest: Record<string, number> = {};
  await inTurn(order.count, order.atOnce, async () => {
    const got = await read(order);
    first[got.first] = (first[got.first] ?? 0) + 1;
    rest[got.rest] = (rest[got.rest] ?? 0) + 1;
  });
  process.send?.({ first, rest } satisfies FirstReads, () => process.exit(0));
}

if (process.send && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.once("message", (order: FirstReadsOrder) => void onOrder(order));
}
