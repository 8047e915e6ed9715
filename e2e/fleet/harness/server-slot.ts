import assert from "node:assert/strict";
import { flags } from "../../harness/pki-files.ts";
import { type ManagedProcess, type ProcessOptions, startCulvert } from "../../harness/processes.ts";
import { scrapePort } from "../../harness/scrape.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { within } from "../../harness/wait.ts";

export type Flags = Readonly<Record<string, string | number | boolean>>;

/** On a busy machine; nothing is measured by it. */
const PATIENCE_MS = 60_000;

/** The place of one server of several: its name and its ports stay, and its processes come and go. */
export class ServerSlot implements AsyncDisposable {
  readonly name: string;
  readonly callerPort: number;
  readonly agentPort: number;
  readonly healthPort: number;
  readonly #flags: Flags;
  readonly #options: ProcessOptions;
  #process: ManagedProcess | undefined;

  private constructor(name: string, ports: readonly number[], flags: Flags, options: ProcessOptions) {
    const [callerPort = 0, agentPort = 0, healthPort = 0] = ports;
    this.name = name;
    this.callerPort = callerPort;
    this.agentPort = agentPort;
    this.healthPort = healthPort;
    this.#flags = flags;
    this.#options = options;
  }

  /** A place where no process runs yet; `more` are its flags beside its name and its ports. */
  static async reserve(name: string, more: Flags, options: ProcessOptions = {}): Promise<ServerSlot> {
    return new ServerSlot(name, await Promise.all([freePort(), freePort(), freePort()]), more, options);
  }

  get process(): ManagedProcess {
    return this.#process ?? assert.fail(`${this.name} was never started`);
  }

  get running(): boolean {
    return this.#process?.running === true;
  }

  /** Resolves when the process listens, which is before an agent has come. */
  async start(): Promise<void> {
    const { callerPort: serverPort, agentPort, healthPort, name: serverId } = this;
    const bind = { serverBindAddress: "127.0.0.1", agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
    const ports = { serverPort, agentPort, healthPort, adminPort: 0 };
    this.#process = startCulvert(["server", ...flags({ serverId, ...ports, ...bind, ...this.#flags })], this.#options);
    await this.#process.waitForHealth(`http://127.0.0.1:${healthPort}/livez`, PATIENCE_MS);
  }

  async whenReady(): Promise<void> {
    await this.process.waitForHealth(`http://127.0.0.1:${this.healthPort}/readyz`, PATIENCE_MS);
  }

  /** SIGTERM, as a supervisor sends it; resolves when the process has ended by itself. */
  async terminate(): Promise<void> {
    this.process.kill("SIGTERM");
    await this.whenEnded();
  }

  async whenEnded(): Promise<void> {
    const exit = await within(this.process.exited, PATIENCE_MS, `the end of ${this.name}`);
    assert.deepEqual(exit, { code: 0, signal: null });
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    this.process.kill("SIGKILL");
    await this.process.exited;
  }

  /** Agents that take connections here, of all clusters. */
  async agents(): Promise<number> {
    return (await scrapePort(this.healthPort)).sum("culvert_server_agents", {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process?.stop();
  }
}
