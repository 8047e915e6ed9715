import type { Program } from "../../harness/program.ts";
import { started } from "../../harness/started.ts";
import type { TempDir } from "../../harness/temp.ts";
import type { Namespace } from "../../kubernetes/world/namespace.ts";

const READY_MS = 20_000;

interface ServiceOptions {
  readonly name: string;
  readonly argv: readonly string[];
  readonly port: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Its files, which are removed with it. */
  readonly dir?: TempDir;
}

/** A program that listens on a port, and can be killed and started again there. */
export class Service implements AsyncDisposable {
  readonly #where: Namespace;
  readonly #options: ServiceOptions;
  #program: Program | undefined;

  private constructor(where: Namespace, options: ServiceOptions) {
    this.#where = where;
    this.#options = options;
  }

  static start(where: Namespace, options: ServiceOptions): Promise<Service> {
    return started(new Service(where, options), (service) => service.start());
  }

  /** Its output since the last start. */
  get output(): readonly string[] {
    return this.#program?.log ?? [];
  }

  /** Resolves when its port is open. */
  async start(): Promise<void> {
    const { name, argv, port, env } = this.#options;
    this.#program = this.#where.start(name, argv, env);
    const listens = async () => (await this.#where.must(["ss", "-Htln", `sport = :${port}`])).stdout !== "";
    await this.#program.waitUntil(listens, READY_MS, `port ${port} to be open`);
  }

  /** Stops it with SIGTERM. */
  async stop(): Promise<void> {
    await this.#program?.stop();
  }

  /** Stops it with SIGKILL; the kernel ends its connections. */
  async kill(): Promise<void> {
    await this.#program?.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // squid takes two seconds to stop with SIGTERM.
    await this.kill();
    this.#options.dir?.[Symbol.dispose]();
  }
}
