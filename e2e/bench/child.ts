import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

/** Methods of a child process of the bench; each takes one object and answers one. */
// biome-ignore lint/suspicious/noExplicitAny: methods of every kind stand in one map.
export type Methods = Readonly<Record<string, (params: any) => unknown>>;

type Params<M extends Methods, K extends keyof M> = Parameters<M[K]>[0];
type Result<M extends Methods, K extends keyof M> = Awaited<ReturnType<M[K]>>;

interface Request {
  readonly id: number;
  readonly method: string;
  readonly params: unknown;
}

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}

/** A process of the bench (load, targets, a floor), asked over IPC. */
export class BenchChild<M extends Methods> implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  #lastId = 0;

  /** `script` is relative to this folder. */
  constructor(script: string) {
    const path = fileURLToPath(new URL(script, import.meta.url));
    this.#child = fork(path, { execArgv: ["--import", "tsx"], serialization: "advanced" });
    this.#child.on("message", (answer: Answer) => this.#onAnswer(answer));
    this.#child.on("exit", (code, signal) => this.#onExit(`${script} ended (${signal ?? code})`));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  call<K extends keyof M & string>(method: K, params: Params<M, K>): Promise<Result<M, K>> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.send({ id, method, params } satisfies Request);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill("SIGKILL");
    await exited;
  }

  #onAnswer({ id, result, error }: Answer): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error !== undefined) waiting?.reject(new Error(error));
    else waiting?.resolve(result as never);
  }

  #onExit(reason: string): void {
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }
}

/** The child's side: answers what the bench asks, ends with it. */
export function serve(methods: Methods): void {
  process.on("disconnect", () => process.exit(0));
  process.on("message", async ({ id, method, params }: Request) => {
    const answer = await attempt(async () => methods[method]?.(params));
    process.send?.({ id, ...answer } satisfies Answer);
  });
}

async function attempt(action: () => Promise<unknown>): Promise<{ result: unknown } | { error: string }> {
  try {
    return { result: await action() };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}
