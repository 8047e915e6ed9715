import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";

const KEPT_BYTES = 1_048_576;

export interface RunOptions {
  /** Text, or a file; nothing when left out. */
  readonly stdin?: string | { readonly file: string };
  readonly env?: Readonly<Record<string, string>>;
  /** Kills the command. */
  readonly signal?: AbortSignal;
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

/** Runs a command to its end, whatever its exit code; rejects when it is killed or does not start. */
export function run(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
  const [command = "", ...args] = argv;
  const { stdin, env = {}, signal, onStdout } = options;
  const file = typeof stdin === "object" ? openSync(stdin.file, "r") : undefined;
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: [file ?? (stdin === undefined ? "ignore" : "pipe"), "pipe", "pipe"],
      env,
      ...(signal === undefined ? {} : { signal }),
      killSignal: "SIGKILL",
    });
    if (file !== undefined) closeSync(file);
    const out = new Kept();
    const err = new Kept();
    child.stdout?.on("data", onStdout ?? ((chunk: Buffer) => out.take(chunk)));
    child.stderr?.on("data", (chunk: Buffer) => err.take(chunk));
    child.stdin?.on("error", () => {}); // a command need not read what it is given
    if (typeof stdin === "string") child.stdin?.end(stdin);
    const said = () => `${argv.slice(-12).join(" ")}\n${out.text()}${err.text()}`;
    child.on("error", (error) => reject(new Error(`${error.message}: ${said()}`, { cause: error })));
    child.on("close", (code, killedBy) => {
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
