import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { freePort } from "./targets/absent.ts";
import { TempDir } from "./temp.ts";
import { waitFor, within } from "./wait.ts";

const READY_MS = 30_000;
const ENDED_MS = 10_000;

interface NatsPorts {
  readonly clients: number;
  readonly monitor: number;
  readonly routes: number;
}

/** Messages that clients have sent to NATS servers, and have been sent by them, since their start. */
export interface NatsMessages {
  readonly received: number;
  readonly sent: number;
}

/** One nats-server, or several that form a cluster; each can be killed and started again on its ports. */
export class NatsServers implements AsyncDisposable {
  readonly #dir = new TempDir();
  readonly #ports: readonly NatsPorts[];
  readonly #processes: (ChildProcess | undefined)[] = [];

  private constructor(ports: readonly NatsPorts[]) {
    this.#ports = ports;
  }

  static async start(count: number): Promise<NatsServers> {
    const ports: NatsPorts[] = [];
    for (let index = 0; index < count; index++) {
      ports.push({ clients: await freePort(), monitor: await freePort(), routes: await freePort() });
    }
    const servers = new NatsServers(ports);
    try {
      await Promise.all(ports.map((_, index) => servers.startOne(index)));
      await servers.#whenJoined();
      return servers;
    } catch (error) {
      await servers[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** For `--directory`. */
  get urls(): readonly string[] {
    return this.#ports.map(({ clients }) => `nats://127.0.0.1:${clients}`);
  }

  /** Resolves when it takes clients. */
  async startOne(index: number): Promise<void> {
    const file = this.#dir.file(`${index}.conf`);
    writeFileSync(file, this.#configuration(index));
    const child = spawn("nats-server", ["-c", file], { stdio: "ignore" });
    this.#processes[index] = child;
    await waitFor(() => this.#isHealthy(index), { deadlineMs: READY_MS, what: `nats-server ${index}` });
  }

  /** SIGKILL. */
  async kill(index: number): Promise<void> {
    const child = this.#processes[index];
    this.#processes[index] = undefined;
    if (child === undefined) return;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await within(exited, ENDED_MS, "the end of nats-server");
  }

  /** Of all that run, those between themselves left out. */
  async messages(): Promise<NatsMessages> {
    let [received, sent] = [0, 0];
    for (const index of this.#running()) {
      // Messages on routes between servers are counted by each of them, too; clients are told apart.
      const { connections } = await this.#monitor<Connections>(index, "connz?limit=10000");
      for (const { in_msgs, out_msgs } of connections) {
        received += in_msgs;
        sent += out_msgs;
      }
    }
    return { received, sent };
  }

  /** Subjects that clients have subscribed to, on all servers. */
  async subscriptions(): Promise<number> {
    let count = 0;
    for (const index of this.#running()) {
      const { connections } = await this.#monitor<Connections>(index, "connz?limit=10000");
      for (const { subscriptions } of connections) count += subscriptions;
    }
    return count;
  }

  /** Of a nats-server. */
  pid(index: number): number {
    return this.#processes[index]?.pid ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#ports.map((_, index) => this.kill(index)));
    this.#dir[Symbol.dispose]();
  }

  #running(): number[] {
    return this.#ports.map((_, index) => index).filter((index) => this.#processes[index] !== undefined);
  }

  #configuration(index: number): string {
    const { clients, monitor, routes } = this.#ports[index] ?? { clients: 0, monitor: 0, routes: 0 };
    const own = `host: 127.0.0.1\nport: ${clients}\nhttp: 127.0.0.1:${monitor}\n`;
    if (this.#ports.length === 1) return own;
    const others = this.#ports.map((port) => `nats://127.0.0.1:${port.routes}`).join(", ");
    return `${own}cluster { name: culvert, listen: 127.0.0.1:${routes}, routes: [${others}] }\n`;
  }

  async #whenJoined(): Promise<void> {
    const others = this.#ports.length - 1;
    for (const index of this.#ports.keys()) {
      const joined = async () => (await this.#monitor<{ routes: number }>(index, "varz")).routes >= others;
      await waitFor(joined, { deadlineMs: READY_MS, what: `the cluster of nats-server ${index}` });
    }
  }

  async #isHealthy(index: number): Promise<boolean> {
    return (await this.#monitor<{ status: string }>(index, "healthz")).status === "ok";
  }

  async #monitor<T>(index: number, path: string): Promise<T> {
    const { monitor } = this.#ports[index] ?? { monitor: 0 };
    const response = await fetch(`http://127.0.0.1:${monitor}/${path}`, { signal: AbortSignal.timeout(5_000) });
    return (await response.json()) as T;
  }
}

interface Connections {
  readonly connections: readonly {
    readonly in_msgs: number;
    readonly out_msgs: number;
    readonly subscriptions: number;
  }[];
}
