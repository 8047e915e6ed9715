import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { startAgent } from "../../agent/agent.ts";
import {
  type DoctorOptions,
  diagnose,
  doctorOptions,
  type Report,
  type ServerReport,
} from "../../agent/doctor/doctor.ts";
import type { StepName } from "../../agent/doctor/report.ts";
import { reportJson } from "../../cli/doctor.ts";
import { reportTo } from "../../cli/step-report.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import type { FaultCode } from "../../shared/faults/faults.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { captureLog } from "./log-lines.ts";
import { agentFiles } from "./pki-files.ts";
import { waitFor } from "./wait.ts";
import type { World } from "./world.ts";

/** Changes of the options and of the environment for a test. */
export interface DoctorChange extends Partial<DoctorOptions> {
  readonly env?: Readonly<Record<string, string>>;
}

/** Whose server is looked for, and where the files are. */
export interface Place {
  readonly dir: Pick<World["dir"], "path">;
  readonly server: Pick<World["server"], "addresses">;
}

/** The result for its one server, and all output. */
export interface Examined extends ServerReport {
  /** For a person. */
  readonly text: string;
  /** With `--json`. */
  readonly json: Report;
}

export interface Blame {
  readonly step: StepName;
  readonly culprit: FaultCode;
  /** The doctor's sentence, and its next step. */
  readonly says: RegExp;
  readonly next?: RegExp;
  /** The log line of an agent with the same options. */
  readonly agent: RegExp;
}

/**
 * The doctor names the culprit at its step, for a person and in JSON, and what to do; what is behind it was not
 * reached. An agent that is in the same place names it in its own log.
 */
export async function assertBlamed(place: Place, change: DoctorChange, blame: Blame): Promise<Examined> {
  const { step, culprit, says, next = /./, agent } = blame;
  const report = await examined(place, change);
  const { verdict, steps, text, json } = report;
  assert.equal(verdict.culprit, culprit, text);
  assert.match(verdict.sentence, says);
  assert.match(verdict.next, next);
  assert.equal(steps.find(({ state }) => state === "failed")?.step, step, text);
  const behind = steps.slice(steps.findLastIndex(({ state }) => state === "failed") + 1);
  assert.ok(
    behind.every((each) => each.state === "not reached" || each.step === "clock"),
    text,
  );
  assert.match(text, new RegExp(`^✗ ${step} +\\d+ ms {2}\\S`, "m"));
  assert.ok(text.endsWith(`\n\n${verdict.sentence}\nNext: ${verdict.next}\n`), text);
  assert.deepEqual([json.healthy, json.servers[0]?.verdict, json.servers[0]?.steps], [false, verdict, steps]);
  assert.match(await agentSays(place, change), agent);
  return report;
}

/** The doctor's report on the way to the world's server, or to another port. */
export async function examined(place: Place, { env = {}, ...change }: DoctorChange = {}): Promise<Examined> {
  let text = "";
  const watcher = reportTo((line) => {
    text += line;
  });
  const report = await diagnose(optionsOf(place, change), env, watcher);
  return { ...(report.servers[0] as ServerReport), text, json: JSON.parse(reportJson(report)) as Report };
}

/** The reason in the first line that an agent with the same options logs about why it has no tunnel. */
export async function agentSays(place: Place, { env = {}, ...change }: DoctorChange = {}): Promise<string> {
  const { log, lines } = captureLog();
  const options = { ...optionsOf(place, change), healthServerPort: 0, adminServerPort: 0 };
  const agent = await startAgent(options, { log, env });
  try {
    const said = await waitFor(() => lines.find(({ msg }) => /^uplink (attempt failed|refused)/.test(msg)));
    return String(said["reason"]);
  } finally {
    agent.destroy(new Error("it has said what it has to say"));
  }
}

function optionsOf({ dir, server }: Place, change: Partial<DoctorOptions>): DoctorOptions {
  return {
    ...defaultsOf(doctorOptions),
    agentId: "agent-1",
    server: [`wss://127.0.0.1:${server.addresses.agents?.port}`],
    handshakeTimeoutMs: 5_000,
    ...agentFiles(dir.path),
    ...change,
  };
}

/** A certificate as an agent's files. */
export function asAgent({ dir }: Pick<World, "dir">, { cert, key }: CertificateAndKey): Partial<DoctorOptions> {
  const [agentCert, agentKey] = [dir.file("doctor.crt"), dir.file("doctor.key")];
  writeFileSync(agentCert, cert);
  writeFileSync(agentKey, key);
  return { agentCert, agentKey };
}

/** Somebody with a certificate who answers each request, and takes no upgrade. */
export async function site(leaf: CertificateAndKey, answer: RequestListener) {
  const server = createServer(leaf, answer);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    server: [`wss://127.0.0.1:${(server.address() as AddressInfo).port}`],
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
