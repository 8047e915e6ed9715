import { Program } from "../../harness/program.ts";
import { type Finished, type RunOptions, run } from "./run.ts";

/** Nothing of this machine's own settings: proxies, certificates, options of culvert. */
const ENVIRONMENT = { PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/nonexistent" };

/** A network namespace that has a name (ip-netns(8)), and the programs in it. */
export class Namespace {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  /** Runs a command to its end, whatever its exit code. */
  run(argv: readonly string[], { env, ...options }: RunOptions = {}): Promise<Finished> {
    return run(this.#inside(argv), { ...options, env: { ...ENVIRONMENT, ...env } });
  }

  /** The same, and an exit code other than 0 is an error. */
  async must(argv: readonly string[], options: RunOptions = {}): Promise<Finished> {
    const finished = await this.run(argv, options);
    if (finished.code === 0) return finished;
    throw new Error(`exit code ${finished.code} of ${argv.join(" ")}\n${finished.stdout}${finished.stderr}`);
  }

  /** `ip netns exec` replaces itself with the program, so signals reach the program. */
  start(name: string, argv: readonly string[], env: Readonly<Record<string, string>> = {}): Program {
    return new Program(name, this.#inside(argv), { env: { ...ENVIRONMENT, ...env } });
  }

  #inside(argv: readonly string[]): string[] {
    return ["ip", "netns", "exec", this.name, ...argv];
  }
}
