import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";

const KEPT_BYTES = 1_048_576;

export interface RunOptions {
  /** Text, or a file; nothing when left out. */
  readonly stdin?: string | { readonly file: string };
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Ends the command with `killSignal`, SIGKILL when left out. */
  readonly signal?: AbortSignal;
  readonly killSignal?: NodeJS.Signals;
  /** Takes what comes on stdout; it is not kept then. */
  readonly onStdout?: (chunk: Buffer) => void;
}

/** A command that has ended by itself. */
export interface Finished {
  readonly code: number;
  /** Of each stream the first MiB. */
  readonly stdout: string;
  readonly stderr: string;
  readonly seconds: number;
}

/** Runs a command to its end, whatever its exit code; rejects when it does not start, or was killed and has ended. */
export function run(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const [command = "", ...args] = argv;
  const { stdin, env = {}, cwd, signal, killSignal = "SIGKILL", onStdout } = options;
  const file = typeof stdin === "object" ? openSync(stdin.file, "r") : undefined;
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: [file ?? (stdin === undefined ? "ignore" : "pipe"), "pipe", "pipe"],
      env,
      ...(cwd === undefined ? {} : { cwd }),
      ...(signal === undefined ? {} : { signal }),
      killSignal,
    });
    if (file !== undefined) closeSync(file);
    const out = new Kept();
    const err = new Kept();
    child.stdout?.on("data", onStdout ?? ((chunk: Buffer) => out.take(chunk)));
    child.stderr?.on("data", (chunk: Buffer) => err.take(chunk));
    child.stdin?.on("error", () => {}); // a command need not read what it is given
    if (typeof stdin === "string") child.stdin?.end(stdin);
    const said = () => `${argv.slice(-12).join(" ")}\n${out.text()}${err.text()}`;
    let failure: Error | undefined;
    child.on("error", (error) => {
      failure ??= error;
    });
    child.on("close", (code, killedBy) => {
      if (failure) return reject(new Error(`${failure.message}: ${said()}`, { cause: failure }));
      if (code === null) return reject(new Error(`${killedBy}: ${said()}`));
      resolve({
        code,
        stdout: out.text(),
        stderr: err.text(),
        seconds: (performance.now() - started) / 1000,
      });
    });
  });
}

class Kept {
  readonly #parts: Buffer[] = [];
  #bytes = 0;

  take(chunk: Buffer): void {
    if (this.#bytes < KEPT_BYTES) this.#parts.push(chunk);
    this.#bytes += chunk.length;
  }

  text(): string {
    return Buffer.concat(this.#parts).toString();
  }
}
