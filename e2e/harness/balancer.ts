import { writeFileSync } from "node:fs";
import { Program } from "./program.ts";
import { started } from "./started.ts";
import { TempDir } from "./temp.ts";
import { takesConnections } from "./wait.ts";

/** A balancer with this configuration, from when its ports answer to its end. */
export class Balancer implements AsyncDisposable {
  readonly #dir = new TempDir();
  readonly #program: Program;

  private constructor(binary: "haproxy" | "nginx", text: string) {
    const file = this.#dir.file("config");
    writeFileSync(file, text);
    const own = `daemon off; pid ${this.#dir.file("pid")}; error_log stderr;`;
    const args = binary === "haproxy" ? ["-db", "-f", file] : ["-c", file, "-e", "stderr", "-g", own];
    this.#program = new Program(binary, [binary, ...args]);
  }

  static start(binary: "haproxy" | "nginx", text: string, ports: readonly number[]): Promise<Balancer> {
    return started(new Balancer(binary, text), async (balancer) => {
      for (const port of ports)
        await balancer.#program.waitUntil(() => takesConnections({ port }), 15_000, `port ${port}`);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.stop(5_000);
    this.#dir[Symbol.dispose]();
  }
}
