import { formatTarget } from "../../shared/address/target.ts";
import { type Draft, defineOptions, type OptionsOf, option, section } from "../../shared/config/options.ts";
import type { Environment } from "../../shared/dial/proxy-route.ts";
import type { Hello } from "../../shared/link/control.ts";
import { NAMES } from "../../shared/names/lookup.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { agentOptions, resolveWithoutCredential } from "../context/options.ts";
import { findAddresses, formatServer, type ServerLocation, wantedServers } from "../context/servers.ts";
import { helloOf } from "../uplink/attempt.ts";
import type { OpenedLink } from "../uplink/open-link.ts";
import { Path } from "../uplink/path.ts";
import { NEVER, readConfiguration } from "./configuration.ts";
import { compareClocks, type DoctorVerdict, type Step, StepFailed, StepLog, verdictOf } from "./report.ts";
import { examineRoute } from "./route.ts";
import { DOCTOR_SOFTWARE, type TunnelDial } from "./tls-fault.ts";
import { dialTunnel } from "./tunnel-steps.ts";

/** The result of the doctor for one server. */
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
export interface DoctorWatcher {
  onServer(server: string): void;
  onStep(step: Step): void;
  onVerdict(verdict: DoctorVerdict): void;
}

/** Examines each server of the options, one after the other, so that a report reads in order. */
export async function diagnose(options: DoctorOptions, env: Environment, watcher: DoctorWatcher): Promise<Report> {
  const servers: ServerReport[] = [];
  for (const location of await bySrv(wantedServers(options))) {
    const server = formatServer(location);
    watcher.onServer(server);
    const log = new StepLog((step) => watcher.onStep(step));
    await examine(location, options, env, log).catch(unlessStepFailed);
    const steps = log.finish();
    const verdict = verdictOf(steps);
    watcher.onVerdict(verdict);
    servers.push({ server, verdict, steps });
  }
  return { healthy: servers.every(({ verdict }) => verdict.culprit === "none"), servers };
}

/** Each host of SRV records in their place. Where they do not resolve, the name after their labels is examined. */
async function bySrv(locations: readonly ServerLocation[]): Promise<readonly ServerLocation[]> {
  const found = locations.map(async (location) => {
    const { srv, ...named } = location;
    if (srv === undefined) return [location];
    const { addresses } = await findAddresses(location, NAMES).catch(() => ({ addresses: [] }));
    return addresses.length === 0 ? [named] : addresses.map((address) => ({ ...named, address }));
  });
  return (await Promise.all(found)).flat();
}

/** The log has the step. */
function unlessStepFailed(error: unknown): void {
  if (!(error instanceof StepFailed)) throw error;
}

/**
 * Examines one server step by step, as an agent would connect, until a step fails.
 *
 * ```
 *  configuration ▶ proxy route ▶ DNS ▶ TCP ▶ proxy ▶ TLS ▶ upgrade ▶ inner TLS ▶ admission ▶ clock
 * ```
 */
async function examine(server: ServerLocation, options: DoctorOptions, env: Environment, log: StepLog): Promise<void> {
  const credentials = await log.run("configuration", () => readConfiguration(options));
  const { handshakeTimeoutMs: timeoutMs } = options;
  const open = await examineRoute({ server, options, env, timeoutMs }, log);
  let serverTime: number | undefined;
  const dial: TunnelDial = {
    // As of an agent that has just started.
    context: {
      options,
      server,
      route: { open, worked: () => undefined, failed: () => {} },
      hello: probeHello(options),
      path: new Path(options),
      graceMs: 0,
    },
    terms: { credentials, timeoutMs, signal: NEVER },
    at: formatTarget(server),
    onTime: (time) => {
      serverTime = time;
    },
  };
  try {
    await leave(await dialTunnel(dial, log));
  } finally {
    const time = serverTime;
    if (time !== undefined) await log.run("clock", () => compareClocks(time));
  }
}

/** Maximum time until the link has ended, ms. */
const LEAVE_MS = 1_000;

/** A server that does not know `probe` may have opened streams: RST in place of ACK has it ask another agent. */
async function leave({ pipe }: OpenedLink): Promise<void> {
  const onStream = (stream: Stream) => stream.on("error", () => {}).destroy();
  await new Session("client", pipe, { onStream, onClosed: () => {} }).close(LEAVE_MS);
}

const SUFFIX = "-doctor";
/** Maximum length of agentId in the hello message. */
const MAX_ID = 253;

/**
 * A probe, and of a name of its own for a server that knows no probes: the agent that runs with these options is not
 * disturbed. A server that refuses the agent for its cluster or an identifier says so to the probe, too.
 */
function probeHello({ agentId, ...others }: DoctorOptions): Hello {
  const ownId = `${agentId.slice(0, MAX_ID - SUFFIX.length)}${SUFFIX}`;
  return { ...helloOf({ ...others, agentId: ownId }, DOCTOR_SOFTWARE), probe: true };
}

const own = section("The doctor", {
  json: option.boolean(false, "Print everything that was found as JSON."),
});

const rows = { ...own, ...agentOptions.options };

/** The options of the agent: the doctor checks what the agent would do with them. */
export const doctorOptions = defineOptions<typeof rows>({
  ...agentOptions,
  command: "doctor",
  summary:
    "Connects step by step as an agent with the same options does, and says what is in the way and what to do next. Exit code 0: nothing is in the way; 1: something is; 2: the options cannot be used.",
  example: [
    "culvert doctor --server wss://culvert.example.com:8091 --ca-cert cluster-ca.crt \\",
    "  --agent-cert agent.crt --agent-key agent.key",
    "culvert doctor --from-server blue 10.0.0.1:10250   # at a server: one connection through its agents",
  ],
  options: rows,
  firstDay: ["json", ...(agentOptions.firstDay ?? [])],
  resolve: (draft) => resolveWithoutCredential(draft as unknown as Draft<typeof agentOptions.options>),
});

export type DoctorOptions = OptionsOf<typeof doctorOptions>;
