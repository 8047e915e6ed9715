import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { ClusterFiles } from "../harness/cluster-files.ts";
import type { KubernetesVolume } from "../harness/kubernetes-volume.ts";
import { flags } from "../harness/pki-files.ts";
import { type ManagedProcess, type ProcessOptions, startCulvert } from "../harness/processes.ts";
import { GROWTH_MEASURED } from "../harness/resident-growth.ts";
import { started } from "../harness/started.ts";
import { freePort } from "../harness/targets/absent.ts";

/**
 * The resident set is what a process holds, as in `GROWTH_MEASURED`. From 8 KiB on, buffers are mappings of their own:
 * among many small allocations, those of TLS records (16 KiB) would leave holes in glibc's heap, which grows by 60 MiB
 * in the first minute and keeps its size. Ctrl-C ends the run cleanly, and must not reach the processes before.
 */
export const SOAKED: ProcessOptions = {
  ...GROWTH_MEASURED,
  env: { MALLOC_MMAP_THRESHOLD_: "8192" },
  detached: true,
};

/** Lines that no process may log during a run: an error, a stack, a warning of Node's own. */
const ALARMING = /"level":"(error|fatal)"|^\s+at |Warning:/;

/** A process under load: where its metrics are, and the lines of its log that must not be there. */
export interface Soaked {
  readonly name: string;
  readonly process: ManagedProcess;
  readonly healthPort: number;
  readonly alarms: readonly string[];
}

/**
 * Watches the log from its first line on, of which `ManagedProcess` keeps a part only, and writes it to NAME.log in the
 * folder `logs` if there is one.
 */
export function soaked(name: string, process: ManagedProcess, healthPort: number, logs?: string): Soaked {
  const alarms: string[] = [];
  const file = logs === undefined ? undefined : createWriteStream(join(logs, `${name}.log`));
  const onLine = (line: string): void => {
    if (ALARMING.test(line)) alarms.push(line);
    file?.write(`${line}\n`);
  };
  for (const line of process.log) onLine(line);
  for (const stream of [process.child.stdout, process.child.stderr]) {
    if (stream === null) continue;
    createInterface({ input: stream }).on("line", onLine);
  }
  return { name, process, healthPort, alarms };
}

/** An agent of a cluster that reads its certificate from a mounted Secret; ready when this resolves. */
export async function startSoakedAgent(
  cluster: ClusterFiles,
  secret: KubernetesVolume,
  { agentId, port, logs }: { readonly agentId: string; readonly port: number; readonly logs: string | undefined },
): Promise<Soaked> {
  const healthPort = await freePort();
  const options = {
    agentId,
    ...{ proxyServerHost: cluster.sni, proxyServerPort: port, serverAddress: "127.0.0.1", allowLoopback: true },
    ...{ healthServerHost: "127.0.0.1", healthServerPort: healthPort, adminServerPort: 0 },
    caCert: secret.file("ca.crt"),
    agentCert: secret.file("tls.crt"),
    agentKey: secret.file("tls.key"),
  };
  const agent = startCulvert(["agent", ...flags(options)], SOAKED);
  const watched = soaked(agentId, agent, healthPort, logs);
  await started(agent, () => agent.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`, 30_000));
  return watched;
}
