import { fork } from "node:child_process";
import { extname, join } from "node:path";
import { seconds } from "../net/seconds.ts";
import { printable } from "../outcomes.ts";

export interface PacQuestion {
  readonly script: string;
  readonly url: string;
  readonly host: string;
  /** For the script, with the names that it looks up. */
  readonly timeoutMs: number;
}

/** `problem`: what is wrong with the script. */
export interface PacAnswer {
  readonly result: string;
  readonly problem: string | undefined;
}

/** For its process to begin, on a machine that is busy. */
const START_TIMEOUT_MS = 20_000;

const PROGRAM = join(import.meta.dirname, `pac-process${extname(import.meta.filename)}`);

/**
 * Runs FindProxyForURL(url, host) of a script that nobody vouches for, in a process of its own, which ends with it: an
 * endless loop or too deep a recursion must neither stop this process nor stay in it, and what breaks out of the sandbox
 * finds no environment. Rejects with an Error that continues "the script".
 */
export function evaluatePac(question: PacQuestion, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = fork(PROGRAM, { env: {}, stdio: ["ignore", "ignore", "ignore", "ipc"] });
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      child.kill("SIGKILL");
    };
    const fail = (why: string): void => {
      end();
      reject(new Error(why));
    };
    const onAbort = (): void => fail("was not done when its answer was wanted");
    let timer = setTimeout(fail, START_TIMEOUT_MS, "could not be started in time");
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();

    child.on("message", (message: "ready" | PacAnswer) => {
      if (message === "ready") {
        clearTimeout(timer);
        timer = setTimeout(fail, question.timeoutMs, `took longer than ${seconds(question.timeoutMs)}`);
        child.send(question);
      } else if (message.problem !== undefined) {
        fail(`failed: ${printable(message.problem)}`);
      } else {
        end();
        resolve(message.result);
      }
    });
    child.on("error", (error) => fail(`could not be run: ${error.message}`));
    child.on("exit", (code, killedBy) => fail(`ended without an answer (${killedBy ?? `exit code ${code}`})`));
  });
}
