import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { konnectivityPrograms } from "./konnectivity-programs.ts";
import { freePort } from "./targets/absent.ts";

interface Settings {
  readonly port: number;
  readonly flags?: readonly string[];
}

/** A process of Konnectivity's own agent. */
export class KonnectivityAgent implements Disposable {
  /** The lines that it has logged. */
  readonly lines: string[] = [];
  readonly process: ChildProcess;

  private constructor(child: ChildProcess) {
    this.process = child;
    if (child.stderr) createInterface(child.stderr).on("line", (line) => this.lines.push(line));
  }

  /** Starts it for the server on this port of 127.0.0.1. `folder`: that of the certificates of a world. */
  static async start(folder: string, { port, flags = [] }: Settings): Promise<KonnectivityAgent> {
    const file = (name: string): string => join(folder, name);
    const args = [
      ...["--proxy-server-host=127.0.0.1", `--proxy-server-port=${port}`, `--ca-cert=${file("cluster-ca.crt")}`],
      ...[
        "--health-server-host=127.0.0.1",
        `--health-server-port=${await freePort()}`,
        `--admin-server-port=${await freePort()}`,
      ],
      ...flags,
    ];
    const { agent } = await konnectivityPrograms();
    return new KonnectivityAgent(spawn(agent, args, { stdio: ["ignore", "ignore", "pipe"] }));
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const ended = once(this.process, "exit");
    if (this.process.kill(signal)) await ended;
  }

  [Symbol.dispose](): void {
    this.process.kill("SIGKILL");
  }
}

/** Flags of an agent that comes by certificate. */
export function certificateFlags(folder: string): string[] {
  return [`--agent-cert=${join(folder, "agent.crt")}`, `--agent-key=${join(folder, "agent.key")}`];
}
