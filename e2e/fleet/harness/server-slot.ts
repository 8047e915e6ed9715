import assert from "node:assert/strict";
import type { ClusterFolder } from "../../harness/cluster-files.ts";
import { clusterServerFlags } from "../../harness/cluster-processes.ts";
import { type Flags, flags } from "../../harness/pki-files.ts";
import { type ManagedProcess, startCulvert } from "../../harness/processes.ts";
import { scrapePort } from "../../harness/scrape.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { within } from "../../harness/wait.ts";
import { OwnDocuments } from "./own-documents.ts";

/** Options of agents of servers that come and go: one that is back is found within that time. */
export const FINDS_SERVERS_SOON = { syncIntervalCapMs: 2_000 };

/** On a busy machine; nothing is measured by it. */
const PATIENCE_MS = 60_000;

/** The place of one server of several: its name and its ports stay, and its processes come and go. */
export class ServerSlot implements AsyncDisposable {
  readonly name: string;
  readonly callerPort: number;
  readonly agentPort: number;
  readonly healthPort: number;
  readonly documents: OwnDocuments;
  readonly #flags: Flags;
  #process: ManagedProcess | undefined;

  private constructor(documents: OwnDocuments, name: string, ports: readonly number[], flags: Flags) {
    const [callerPort = 0, agentPort = 0, healthPort = 0] = ports;
    this.documents = documents;
    this.name = name;
    this.callerPort = callerPort;
    this.agentPort = agentPort;
    this.healthPort = healthPort;
    this.#flags = flags;
  }

  /** A place where no process runs yet; `more` are its flags beside its name, its ports and its clusters. */
  static async reserve(name: string, folder: ClusterFolder, more: Flags): Promise<ServerSlot> {
    const ports = await Promise.all([freePort(), freePort(), freePort()]);
    return new ServerSlot(new OwnDocuments(folder, name), name, ports, more);
  }

  get process(): ManagedProcess {
    return this.#process ?? assert.fail(`${this.name} was never started`);
  }

  get running(): boolean {
    return this.#process?.running === true;
  }

  /** Resolves when the process listens, which is before an agent has come. */
  async start(): Promise<void> {
    const own = clusterServerFlags(this.documents.path, this);
    this.#process = startCulvert(["server", ...flags({ ...own, serverId: this.name, ...this.#flags })]);
    await this.#process.waitForHealth(`http://127.0.0.1:${this.healthPort}/livez`, PATIENCE_MS);
  }

  async whenReady(): Promise<void> {
    await this.process.waitForHealth(`http://127.0.0.1:${this.healthPort}/readyz`, PATIENCE_MS);
  }

  /** SIGTERM, as a supervisor sends it; resolves when the process has ended by itself. */
  async terminate(): Promise<void> {
    this.process.signal("SIGTERM");
    await this.whenEnded();
  }

  async whenEnded(): Promise<void> {
    assert.equal(await within(this.process.exited, PATIENCE_MS, `the end of ${this.name}`), "exit code 0");
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    await this.process.kill();
  }

  /** Agents that take connections here, of all clusters. */
  async agents(): Promise<number> {
    return (await scrapePort(this.healthPort)).sum("culvert_server_agents", {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process?.stop();
  }
}
