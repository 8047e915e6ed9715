import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { TempDir } from "./temp.ts";
import { takesConnections, waitFor, within } from "./wait.ts";

/** A balancer with this configuration, from when its ports answer to its end. */
export class Balancer implements AsyncDisposable {
  readonly #dir = new TempDir();
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  #output = "";

  private constructor(binary: "haproxy" | "nginx", text: string) {
    const file = this.#dir.file("config");
    writeFileSync(file, text);
    const own = `daemon off; pid ${this.#dir.file("pid")}; error_log stderr;`;
    const args = binary === "haproxy" ? ["-db", "-f", file] : ["-c", file, "-e", "stderr", "-g", own];
    this.#child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#exited = once(this.#child, "exit");
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        this.#output += String(chunk);
      });
    }
  }

  static async start(binary: "haproxy" | "nginx", text: string, ports: readonly number[]): Promise<Balancer> {
    const balancer = new Balancer(binary, text);
    try {
      for (const port of ports) await waitFor(() => takesConnections({ port }), { what: `${binary} on port ${port}` });
      return balancer;
    } catch (error) {
      await balancer[Symbol.asyncDispose]();
      throw new Error(`${(error as Error).message}\n${balancer.#output}`, { cause: error });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGTERM");
    await within(this.#exited, 5_000, "the balancer to end").catch(() => this.#child.kill("SIGKILL"));
    this.#dir[Symbol.dispose]();
  }
}
