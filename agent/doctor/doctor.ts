import { type Draft, defineOptions, type OptionsOf, option, section } from "../../shared/config/options.ts";
import type { Environment } from "../../shared/dial/environment.ts";
import { agentOptions, resolveWithoutCredential } from "../options.ts";
import { findAddresses, SYSTEM_RESOLVER } from "../uplink/server-addresses.ts";
import { formatServer, type ServerLocation, wantedServers } from "../uplink/servers.ts";
import { type Examination, examine } from "./examine.ts";
import type { Step } from "./steps.ts";
import { type DoctorVerdict, verdictOf } from "./verdict.ts";

/** What was found at one server. */
export interface ServerReport {
  readonly server: string;
  readonly verdict: DoctorVerdict;
  readonly steps: readonly Step[];
}

export interface Report {
  readonly healthy: boolean;
  readonly servers: readonly ServerReport[];
}

/** Receives the results while the doctor runs. */
export interface DoctorWatcher extends Pick<Examination, "onStep"> {
  onServer(server: string): void;
  onVerdict(verdict: DoctorVerdict): void;
}

/** Examines each server of the options, one after the other, because measurements must not share the path. */
export async function diagnose(options: DoctorOptions, env: Environment, watcher: DoctorWatcher): Promise<Report> {
  const servers: ServerReport[] = [];
  for (const location of await bySrv(wantedServers(options))) {
    const server = formatServer(location);
    watcher.onServer(server);
    const measureMs = options.seconds * 1_000;
    const steps = await examine(location, { options, env, measureMs, onStep: (step) => watcher.onStep(step) });
    const verdict = verdictOf(steps);
    watcher.onVerdict(verdict);
    servers.push({ server, verdict, steps });
  }
  return { healthy: servers.every(({ verdict }) => verdict.culprit === "none"), servers };
}

/** Each host of SRV records in their place. Where they do not resolve, the name behind their labels is examined. */
async function bySrv(locations: readonly ServerLocation[]): Promise<readonly ServerLocation[]> {
  const found = locations.map(async (location) => {
    const { srv, ...named } = location;
    if (srv === undefined) return [location];
    const { addresses } = await findAddresses(location, SYSTEM_RESOLVER).catch(() => ({ addresses: [] }));
    return addresses.length === 0 ? [named] : addresses.map((address) => ({ ...named, address }));
  });
  return (await Promise.all(found)).flat();
}

const own = section("The doctor", {
  json: option.boolean(false, "Everything that was found, as JSON."),
  seconds: option.integer(5, "Seconds for which each direction is measured. 0: not at all.", { min: 0, max: 8 }),
});

const rows = { ...own, ...agentOptions.options };

/** Those of the agent: what is looked at is what it would do. */
export const doctorOptions = defineOptions<typeof rows>({
  ...agentOptions,
  command: "doctor",
  summary:
    "Goes the way of an agent with the same options, step by step, and says who is in the way, and what to do next. Exit code 0: nobody is; 1: somebody is; 2: the options cannot be used.",
  example: [
    "culvert doctor --server wss://culvert.example.com:8091 --ca-cert cluster-ca.crt \\",
    "  --agent-cert agent.crt --agent-key agent.key",
    "culvert doctor --from-server blue 10.0.0.1:10250   # at a server: one connection through its agents",
  ],
  options: rows,
  resolve: (draft) => resolveWithoutCredential(draft as unknown as Draft<typeof agentOptions.options>),
});

export type DoctorOptions = OptionsOf<typeof doctorOptions>;
