import { type ChildProcess, fork } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, join, sep } from "node:path";
import { programFile } from "../basics/program.ts";
import { seconds } from "../basics/text.ts";
import { printable } from "../outcomes.ts";

export interface PacQuestion {
  readonly script: string;
  readonly url: string;
  readonly host: string;
  /** For the script, with the names that it looks up. */
  readonly timeoutMs: number;
}

export interface PacAnswer {
  readonly result: string;
  /** What is wrong with the script. */
  readonly problem: string | undefined;
}

/** Time for the child process to start on a busy machine. */
const START_TIMEOUT_MS = 20_000;

const PROGRAM = programFile("shared/dial/pac-process");
/** The packages that the program imports. */
const PACKAGES = ["pac-resolver", "quickjs-wasi"];

/**
 * Runs FindProxyForURL(url, host) of an untrusted script in a process of its own, which ends with it. An endless loop
 * or a deep recursion cannot stop this process, and code that breaks out of the sandbox finds no environment and no
 * files. Rejects with an Error whose message continues "the script".
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
        fail("sent an invalid answer");
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

/** Code that has broken out of the sandbox may send any message. */
function isAnswer(message: unknown): message is PacAnswer {
  const { result, problem } = (message ?? {}) as Partial<Record<keyof PacAnswer, unknown>>;
  return typeof result === "string" && (problem === undefined || typeof problem === "string");
}

/**
 * Starts a program of this package with an empty environment and under Node's permission model. It may use the network
 * and read its own file and the named packages with their dependencies. It cannot access other files, nor start
 * processes, threads, addons or the inspector. A TypeScript source, which only a developer runs, is not confined,
 * because its loader starts processes.
 */
export function forkConfined(program: string, packages: readonly string[]): ChildProcess {
  const isSource = extname(program) === ".ts";
  return fork(program, {
    env: {},
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    // By default fork() passes on the flags of this process, such as --inspect.
    execArgv: isSource ? process.execArgv : confinement(program, packages),
  });
}

function confinement(program: string, packages: readonly string[]): string[] {
  const ifKnown = (flag: string): string[] => (process.allowedNodeEnvironmentFlags.has(flag) ? [flag] : []);
  const [permission = "--experimental-permission"] = ifKnown("--permission"); // its name until Node 22.13
  const readable = [realpathSync(program), ...foldersOf(packages, program)];
  // Only Node 25 and later restrict the network.
  return [permission, ...ifKnown("--allow-net"), ...readable.map((path) => `--allow-fs-read=${path}`)];
}

/** The folders of these packages and their dependencies, as resolved from a file; of a symbolic link both ends. */
function foldersOf(packages: readonly string[], from: string, found = new Set<string>()): Set<string> {
  for (const name of packages) {
    const paths = createRequire(from).resolve.paths(name) ?? [];
    const folder = paths.map((path) => join(path, name)).find((path) => existsSync(join(path, "package.json")));
    if (folder === undefined || found.has(folder + sep)) continue;
    const manifest = join(realpathSync(folder), "package.json");
    found.add(folder + sep).add(realpathSync(folder) + sep);
    const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(readFileSync(manifest, "utf8"));
    foldersOf(Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies }), manifest, found);
  }
  return found;
}
