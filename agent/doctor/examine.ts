import type { SecureVersion } from "node:tls";
import { formatTarget } from "../../shared/address/target.ts";
import type { Environment } from "../../shared/dial/environment.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { AgentOptions } from "../options.ts";
import type { Credentials } from "../uplink/credentials.ts";
import { helloOf } from "../uplink/hello.ts";
import type { ServerLocation } from "../uplink/servers.ts";
import { readConfiguration } from "./configuration.ts";
import { download, NoProbes, openProbe, type ProbeTunnel, pingpong, probeTunnel, upload } from "./measure.ts";
import { examineRoute, type Open } from "./route.ts";
import { DOCTOR_SOFTWARE } from "./second-look.ts";
import { type Step, StepFailed, StepLog, type StepName } from "./steps.ts";
import { dialTunnel, type Welcomed } from "./tunnel-steps.ts";
import { compareClocks } from "./verdict.ts";

export interface Examination {
  readonly options: AgentOptions;
  /** With the proxies that it names. */
  readonly env: Environment;
  /** Of each direction's measurement, ms; 0: none. */
  readonly measureMs: number;
  onStep(step: Step): void;
}

/**
 * Examines one server step by step, as an agent would connect, until a step fails.
 *
 * ```
 *  configuration ▶ proxy route ▶ DNS ▶ TCP ▶ proxy ▶ TLS ▶ upgrade ▶ inner TLS ▶ admission ▶ clock ▶ echo ▶ …
 * ```
 */
export async function examine(server: ServerLocation, examination: Examination): Promise<readonly Step[]> {
  const log = new StepLog(examination.onStep);
  try {
    await walk(server, examination, log);
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
  }
  return log.finish();
}

async function walk(server: ServerLocation, examination: Examination, log: StepLog): Promise<void> {
  const { options, env } = examination;
  const credentials = await log.run("configuration", () => readConfiguration(options));
  const open = await examineRoute({ server, options, env, timeoutMs: options.handshakeTimeoutMs }, log);
  const tunnel = probeTunnel(await welcomed(server, options, credentials, open, log));
  try {
    await measure(tunnel, examination.measureMs, log);
  } finally {
    await tunnel.close();
  }
}

/** Dials as an agent. The server's time on the way matters only where the dial fails. */
async function welcomed(
  server: ServerLocation,
  options: AgentOptions,
  credentials: Credentials,
  open: Open,
  log: StepLog,
): Promise<Welcomed> {
  const { host, port, path } = server;
  const { tlsMinVersion, cipherSuites: ciphers, handshakeTimeoutMs: timeoutMs, keepaliveMs, innerTls } = options;
  const rule = { innerTls, path: { intercepted: false } }; // an agent that starts has found no middlebox yet
  const tls = { minVersion: tlsMinVersion as SecureVersion, ...(ciphers !== "" && { ciphers }) };
  let clock: { readonly time: number; readonly from: string } | undefined;
  const dial = {
    options: {
      host,
      port,
      path,
      timeoutMs,
      keepaliveMs,
      tls,
      trust: { ca: credentials.ca, outerCa: credentials.outerCa },
    },
    ...{ hello: probeHello(options), credentials, rule, replayBytes: options.replayBuffer, open },
    at: formatTarget({ host, port }),
    onTime: (time: number, from: string) => {
      clock = { time, from };
    },
  };
  try {
    return await dialTunnel(dial, log);
  } catch (error) {
    if (clock !== undefined) {
      const { time, from } = clock;
      await log.run("clock", () => compareClocks(time, from));
    }
    throw error;
  }
}

const SUFFIX = "-doctor";
/** Maximum length of agentId in the hello message. */
const MAX_ID = 253;

/**
 * A probe, and of a name of its own for a server that knows no probes: the agent that runs with these options is not
 * disturbed. A server that refuses the agent for its cluster or an identifier says so to the probe, too.
 */
function probeHello({ agentId, ...others }: AgentOptions): Hello {
  const ownId = `${agentId.slice(0, MAX_ID - SUFFIX.length)}${SUFFIX}`;
  return { ...helloOf({ ...others, agentId: ownId }, DOCTOR_SOFTWARE), probe: true };
}

/** What the tunnel carries, by probes that the server answers; without them it is healthy all the same. */
async function measure(tunnel: ProbeTunnel, measureMs: number, log: StepLog): Promise<void> {
  await unlessNoProbes("echo", log, async () => {
    const probe = openProbe(tunnel, "echo");
    const { time } = await probe.catch(() => ({ time: undefined })); // its fault is the echo's
    if (time === undefined) log.skip("clock", "the server does not say what time it is");
    else await log.run("clock", () => compareClocks(time, "as the server says"));
    await log.run("echo", async () => pingpong(tunnel, (await probe).stream));
  });
  if (measureMs === 0) return;
  await unlessNoProbes("upload", log, () => log.run("upload", () => upload(tunnel, measureMs)));
  await unlessNoProbes("download", log, () => log.run("download", () => download(tunnel, measureMs)));
}

async function unlessNoProbes(step: StepName, log: StepLog, look: () => Promise<void>): Promise<void> {
  try {
    await look();
  } catch (error) {
    if (!(error instanceof NoProbes)) throw error;
    log.skip(step, error.message);
  }
}
