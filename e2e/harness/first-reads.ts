import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { RUN_SOURCES } from "../../shared/runtime/testing/project.ts";
import { type CallerListener, dialListener } from "./caller.ts";
import { runConcurrently } from "./concurrently.ts";
import { within } from "./wait.ts";

/** CONNECTs to a target that speaks first, by a reader in a process of its own. */
interface FirstReadsOrder {
  readonly listener: CallerListener;
  readonly target: string;
  readonly count: number;
  readonly atOnce: number;
  /** The text that the target sends by itself. */
  readonly banner: string;
}

/** Counts by the text of the first read, and by the text that came behind it, over all reads. */
interface FirstReads {
  readonly first: Readonly<Record<string, number>>;
  readonly rest: Readonly<Record<string, number>>;
  /** CONNECTs that were made again because the reader had slept; many of them mean that the machine is too busy. */
  readonly asleep: number;
}

/** The only answer that kube-apiserver takes (docs/architecture.md). */
export const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";
/** Half of the gap (docs/architecture.md). */
const SLEEP_MS = 50;
const DEADLINE_MS = 15_000;

/**
 * Reads like kube-apiserver, for which a byte behind the 200 in the same read is an error: the process does nothing
 * but wait for it, and so reads as soon as the kernel has something.
 */
export function firstReads(order: FirstReadsOrder): Promise<FirstReads> {
  const child = fork(fileURLToPath(import.meta.url), { execArgv: [...RUN_SOURCES] });
  return new Promise<FirstReads>((resolve, reject) => {
    child.on("message", (result: FirstReads) => resolve(result));
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the reader ended (${code})`)));
    child.send(order);
  }).finally(() => child.kill("SIGKILL"));
}

interface Read {
  readonly first: string;
  readonly rest: string;
  readonly asleep: boolean;
}

/** One CONNECT: the first read, and all that follows until the banner is there. */
function read({ listener, target, banner }: FirstReadsOrder, watch: SleepWatch): Promise<Read> {
  const socket = dialListener(listener);
  socket.setEncoding("latin1");
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  const done = new Promise<Read>((resolve, reject) => {
    let first: string | undefined;
    let rest = "";
    let asleep = false;
    const settle = () => resolve({ first: first ?? "", rest, asleep });
    socket.on("data", (text: string) => {
      if (first === undefined) {
        first = text;
        asleep = watch.sleptJustNow();
      } else rest += text;
      if (first.length + rest.length >= ESTABLISHED.length + banner.length) settle();
    });
    socket.on("end", settle);
    socket.on("error", reject);
  });
  return within(done, DEADLINE_MS, "the banner").finally(() => socket.destroy());
}

/**
 * Notices when the process did not get its turn. A reader that slept longer than the gap between the 200 and the
 * target's bytes reads them together, whoever sent them: that says nothing about the sender, and is tried again.
 */
class SleepWatch {
  #lastTick = performance.now();
  #sleptUntil = 0;
  readonly #timer = setInterval(() => this.#look(), 1);

  /** Whether there was a pause of `SLEEP_MS` in which the present read may have fallen. */
  sleptJustNow(): boolean {
    this.#look();
    return performance.now() - this.#sleptUntil < SLEEP_MS;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const now = performance.now();
    if (now - this.#lastTick > SLEEP_MS) this.#sleptUntil = now;
    this.#lastTick = now;
  }
}

async function onOrder(order: FirstReadsOrder): Promise<void> {
  const first: Record<string, number> = {};
  const rest: Record<string, number> = {};
  const watch = new SleepWatch();
  let asleep = 0;
  await runConcurrently(order.count, order.atOnce, async () => {
    let got = await read(order, watch);
    for (; got.asleep && got.first !== ESTABLISHED; asleep++) got = await read(order, watch);
    first[got.first] = (first[got.first] ?? 0) + 1;
    rest[got.rest] = (rest[got.rest] ?? 0) + 1;
  });
  watch.stop();
  process.send?.({ first, rest, asleep } satisfies FirstReads, () => process.exit(0));
}

if (process.send && process.argv[1] === fileURLToPath(import.meta.url)) {
  process.once("message", (order: FirstReadsOrder) => void onOrder(order));
}
