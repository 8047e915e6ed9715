import { extname, join } from "node:path";
import { seconds } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import { forkConfined } from "./confined-process.ts";

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
/** That it imports. */
const PACKAGES = ["pac-resolver", "quickjs-wasi"];

/**
 * Runs FindProxyForURL(url, host) of a script that nobody vouches for, in a process of its own, which ends with it: an
 * endless loop or too deep a recursion must neither stop this process nor stay in it, and code that breaks out of the sandbox
 * finds no environment and no files (`forkConfined`). Rejects with an Error that continues "the script".
 */
export function evaluatePac(question: PacQuestion, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = forkConfined(PROGRAM, PACKAGES);
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

    child.on("message", (message: unknown) => {
      if (message === "ready") {
        clearTimeout(timer);
        timer = setTimeout(fail, question.timeoutMs, `took longer than ${seconds(question.timeoutMs)}`);
        child.send(question);
      } else if (!isAnswer(message)) {
        fail("sent what is no answer");
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

/** Code that has broken out of the sandbox may send anything. */
function isAnswer(message: unknown): message is PacAnswer {
  const { result, problem } = (message ?? {}) as Partial<Record<keyof PacAnswer, unknown>>;
  return typeof result === "string" && (problem === undefined || typeof problem === "string");
}
