import type { Environment } from "../../shared/dial/environment.ts";
import { formatServer, wantedServers } from "../uplink/servers.ts";
import { type Examination, examine } from "./examine.ts";
import type { DoctorOptions } from "./options.ts";
import type { Step } from "./steps.ts";
import { judge, type Verdict } from "./verdict.ts";

/** What was found at one server. */
export interface ServerReport {
  readonly server: string;
  readonly verdict: Verdict;
  readonly steps: readonly Step[];
}

export interface Report {
  readonly healthy: boolean;
  readonly servers: readonly ServerReport[];
}

/** Who is told while it goes on. */
export interface DoctorWatcher extends Pick<Examination, "onStep"> {
  onServer(server: string): void;
  onVerdict(verdict: Verdict): void;
}

/** Each server of the options, one after the other: measurements must not share the way. */
export async function diagnose(options: DoctorOptions, env: Environment, watcher: DoctorWatcher): Promise<Report> {
  const servers: ServerReport[] = [];
  for (const location of wantedServers(options)) {
    const server = formatServer(location);
    watcher.onServer(server);
    const measureMs = options.seconds * 1_000;
    const steps = await examine(location, { options, env, measureMs, onStep: (step) => watcher.onStep(step) });
    const verdict = judge(steps);
    watcher.onVerdict(verdict);
    servers.push({ server, verdict, steps });
  }
  return { healthy: servers.every(({ verdict }) => verdict.culprit === "none"), servers };
}
