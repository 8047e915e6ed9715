import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { type TcpTarget, tcpTarget } from "../../harness/targets/tcp.ts";

const LOG_EVERY_MS = 50;

/**
 * A target in a cluster, which names its cluster. To `review N` it answers like a webhook, and ends; to `logs` it sends
 * numbered lines until its reader has ended.
 */
function clusterTarget(cluster: string): Promise<TcpTarget> {
  return tcpTarget((socket) => {
    const lines = createInterface({ input: socket });
    lines.on("error", () => {}); // the socket's own
    lines.once("line", (line) => {
      if (line === "logs") sendLog();
      else socket.end(`${cluster} allows ${line}\n`);
    });

    function sendLog(): void {
      let number = 0;
      const timer = setInterval(() => socket.write(`${cluster} ${++number}\n`), LOG_EVERY_MS);
      lines.once("close", () => socket.end());
      socket.once("close", () => clearInterval(timer));
    }
  });
}

/** The targets of several clusters. */
export class ClusterTargets implements AsyncDisposable {
  readonly #targets = new Map<string, TcpTarget>();

  static async start(clusters: readonly string[]): Promise<ClusterTargets> {
    const targets = new ClusterTargets();
    for (const cluster of clusters) targets.#targets.set(cluster, await clusterTarget(cluster));
    return targets;
  }

  addressOf(cluster: string): string {
    return this.#targets.get(cluster)?.address ?? assert.fail(`there is no cluster ${cluster}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const target of this.#targets.values()) await target[Symbol.asyncDispose]();
  }
}
