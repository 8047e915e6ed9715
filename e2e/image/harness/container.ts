import { readdirSync, readFileSync } from "node:fs";
import type { Mount } from "../../harness/machine-root.ts";
import { Program } from "../../harness/program.ts";
import { within } from "../../harness/wait.ts";
import type { Image } from "./build.ts";

interface ContainerOptions {
  /** In place of the image's entry point, as `command` of a Kubernetes container. */
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly volumes?: readonly Mount[];
}

/** Process 1 of an image, as the restricted Pod Security Standard allows it, but on this machine's network. */
export class Container implements AsyncDisposable {
  readonly #program: Program;
  /** Of process 1, as this machine knows it. */
  readonly pid: number;

  private constructor(program: Program, pid: number) {
    this.#program = program;
    this.pid = pid;
  }

  static async start(image: Image, { command, args, volumes = [] }: ContainerOptions): Promise<Container> {
    const argv = [...(command ?? image.entrypoint), ...(args ?? (command === undefined ? image.command : []))];
    const { root, env, folder, user } = image;
    const line = root.commandLine({ argv, env, folder, mounts: volumes, owner: user, readOnly: true });
    const program = new Program(argv.join(" ").slice(0, 40), line, { env: { PATH: process.env["PATH"] } });
    const pid = await program.waitForLog(/^pid \d+$/);
    return new Container(program, Number(pid.slice("pid ".length)));
  }

  /** Its output so far. */
  get output(): string {
    return this.#program.log.slice(1).join("\n");
  }

  get running(): boolean {
    return this.#program.running;
  }

  /** As a container runtime sends it. */
  signal(signal: NodeJS.Signals): void {
    process.kill(this.pid, signal);
  }

  waitForLog(pattern: RegExp): Promise<string> {
    return this.#program.waitForLog(pattern);
  }

  async waitForHealth(port: number): Promise<void> {
    await this.#program.waitForHealth(`http://127.0.0.1:${port}/readyz`, 15_000);
  }

  /** `exit code N`, or the signal that it died of. */
  end(deadlineMs = 10_000): Promise<string> {
    return within(this.#program.exited, deadlineMs, "the container to end").catch((error: Error) => {
      throw new Error(`${error.message}\n${this.output}`);
    });
  }

  /** Values of a line of /proc/1/status, such as `Uid`. */
  status(name: string): string[] {
    const line = new RegExp(`^${name}:\\s*(.*)$`, "m").exec(readFileSync(`/proc/${this.pid}/status`, "utf8"));
    return line?.[1]?.split(/\s+/) ?? [];
  }

  /** Numbers of its children; those count that have ended and have not been waited for. */
  children(): string[] {
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        try {
          return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[1] === String(this.pid);
        } catch {
          return false; // it has ended meanwhile
        }
      });
  }

  /** Words of its command line, or none when it has ended. */
  commandLine(): string[] {
    try {
      return readFileSync(`/proc/${this.pid}/cmdline`, "utf8").split("\0").slice(0, -1);
    } catch {
      return [];
    }
  }

  /** Kills what started it, as the kernel does with a test that has been killed. */
  async abandon(): Promise<void> {
    await this.#program.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      // The process that started it waits for it, and ends.
      if (this.running) this.signal("SIGKILL");
    } catch {
      // It has ended in this moment.
    }
    await this.#program.exited;
  }
}
