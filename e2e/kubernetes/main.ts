import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release } from "node:os";
import { fileURLToPath } from "node:url";
import { requireBuilt } from "../harness/processes.ts";
import { helmMissing } from "../helm/harness/helm-program.ts";
import { type Assets, AssetsMissing, findOrBuildAssets } from "./assets.ts";
import { belongsTo, type Check, type Row } from "./check.ts";
import { CHARTS } from "./checks/charts.ts";
import { CUTS } from "./checks/cuts.ts";
import { DIALS } from "./checks/dials.ts";
import { EXAMPLES } from "./checks/examples.ts";
import { EXTENSIONS } from "./checks/extensions.ts";
import { BAD_TARGETS, FAILURES, SERVER_COMES_LATER } from "./checks/failures.ts";
import { AGENTS_ONLY, NO_DIRECT_WAY } from "./checks/gate.ts";
import { INSTALLED_CHARTS } from "./checks/installed.ts";
import { INSTALLERS } from "./checks/installers.ts";
import { KIND_EXAMPLE } from "./checks/kind-example.ts";
import { KONNECTIVITY_ITSELF } from "./checks/konnectivity-itself.ts";
import { MIGRATION } from "./checks/migration.ts";
import { NODE_WAY } from "./checks/node-way.ts";
import { PKI_SECRETS } from "./checks/pki-secrets.ts";
import { RECORDED_EXEC } from "./checks/recorded-exec.ts";
import { SERVER_COUNT } from "./checks/server-count.ts";
import { SIDE_BY_SIDE } from "./checks/side-by-side.ts";
import { SLOW_BYTES_PER_SECOND, SLOW_LINE } from "./checks/slow-line.ts";
import { STREAMS } from "./checks/streams.ts";
import { whatIsMissing } from "./prerequisites.ts";
import { type Report, rowLine, section, withSection } from "./report.ts";
import { Runner } from "./run-checks.ts";
import { readSettings, type Settings, USAGE } from "./settings.ts";
import { type Lane, TUNNELS } from "./world/lanes.ts";
import { createWorld, type World } from "./world/world.ts";

const RESULTS = fileURLToPath(new URL("../../docs/kubernetes-results.md", import.meta.url));

/** `npm run e2e:kubernetes`: a real kube-apiserver, whose only way to its nodes is culvert. */
async function main(interrupted: AbortSignal): Promise<void> {
  const settings = settingsOrUsage();
  const where = circumstances();
  const assets = await assetsOrReason(settings.kubernetes, interrupted);
  if (typeof assets === "string") return skip(assets);
  requireBuilt();
  const charts = chartsOrNone();
  await using world = await createWorld(assets);
  const rows = await unlessInterrupted(() => runLanes(world, settings, charts), interrupted);
  tell({ kubernetes: assets.version, circumstances: where, rows }, settings);
}

/** A program that is missing is a failure on CI, and anywhere else a reason to do without. */
async function assetsOrReason(version: string, interrupted: AbortSignal): Promise<Assets | string> {
  const missing = await whatIsMissing();
  interrupted.throwIfAborted();
  if (missing !== undefined) return missing;
  try {
    return await findOrBuildAssets(version, interrupted);
  } catch (error) {
    interrupted.throwIfAborted();
    if (error instanceof AssetsMissing) return error.message;
    throw error;
  }
}

function skip(reason: string): void {
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  console.log(`skipped: no kube-apiserver was tried, because ${reason}`);
}

/** Charts need helm; the rest does not. */
function chartsOrNone(): readonly Check[] {
  const missing = helmMissing();
  if (missing === false) return [CHARTS, ...INSTALLED_CHARTS, KIND_EXAMPLE];
  console.log(`skipped: the charts were not tried, because ${missing}`);
  return [];
}

async function runLanes(world: World, settings: Settings, charts: readonly Check[]): Promise<Row[]> {
  const rows: Row[] = [];
  for (const lane of settings.lanes) rows.push(...(await runLane(world, lane, settings, charts)));
  return rows;
}

async function runLane(
  world: World,
  lane: Lane,
  { lanes, full, only, repeat }: Settings,
  charts: readonly Check[],
): Promise<Row[]> {
  if (lane === "direct") await world.network.open();
  else await world.network.close();
  world.culvert.useAgents(lane === "direct" ? [] : TUNNELS[lane].agents);
  const kubeApiserver = await world.startKubeApiserver(lane === "direct" ? undefined : world.egress(lane));
  const runner = new Runner(world, lane, kubeApiserver, repeat);
  const wanted = (checks: readonly Check[]) =>
    checks.filter((check) => check.name.includes(only) && belongsTo(lane, check, lanes, full));
  await runner.run([NO_DIRECT_WAY, SERVER_COMES_LATER, AGENTS_ONLY]);
  await runner.run(wanted([...STREAMS, ...EXTENSIONS, ...DIALS]));
  await runner.run(wanted([...PKI_SECRETS, SERVER_COUNT]));
  await runner.run(wanted(BAD_TARGETS));
  await runner.run(wanted([...CUTS, RECORDED_EXEC]));
  await runner.run(wanted(NODE_WAY));
  if (lane === "uds") {
    await world.network.slow(SLOW_BYTES_PER_SECOND);
    await runner.run(wanted(SLOW_LINE));
    await world.network.slow(undefined);
  }
  await runner.run(wanted(FAILURES));
  await runner.run(wanted(INSTALLERS));
  await runner.run(wanted([SIDE_BY_SIDE, MIGRATION, KONNECTIVITY_ITSELF]));
  await runner.run(wanted([...EXAMPLES, ...charts]));
  await Promise.all([kubeApiserver.program.kill(), world.culvert.stop()]);
  return runner.rows;
}

/** On screen always; in the results where that is asked for and everything holds. */
function tell(report: Report, { write }: Settings): void {
  console.log(`\n${section(report)}\n`);
  const failed = report.rows.filter(({ failure }) => failure !== undefined);
  for (const row of failed) console.error(rowLine(row));
  console.log(`${report.rows.length - failed.length} passed, ${failed.length} failed`);
  if (failed.length > 0) process.exitCode = 1;
  else if (write) writeFileSync(RESULTS, withSection(readFileSync(RESULTS, "utf8"), report));
}

/** Before the run: what else the machine has to do distorts the times. */
function circumstances(): string {
  return `${[
    new Date().toISOString().slice(0, 10),
    `${cpus().length} × ${cpus()[0]?.model.trim()}`,
    `Linux ${release().split(".", 2).join(".")}`,
    `Node.js ${process.version}`,
    `load average before the run ${loadavg()[0]?.toFixed(1)}`,
  ].join(", ")}.`;
}

/**
 * From the first moment on, so that builds, namespaces and processes are gone before this process is. A second signal
 * finds nobody who listens.
 */
function interruption(): AbortSignal {
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, () => interrupted.abort(new Error(`ended by ${signal}`)));
  }
  return interrupted.signal;
}

function unlessInterrupted<T>(work: () => Promise<T>, interrupted: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    interrupted.throwIfAborted();
    interrupted.addEventListener("abort", () => reject(interrupted.reason));
    work().then(resolve, reject);
  });
}

function settingsOrUsage(): Settings {
  try {
    return readSettings(process.argv.slice(2), process.env["CULVERT_FULL"] === "1");
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    process.exit(2);
  }
}

const interrupted = interruption();
try {
  await main(interrupted);
} catch (error) {
  // Whatever fails then, fails for this reason.
  console.error(interrupted.aborted ? interrupted.reason.message : error);
  process.exitCode = 1;
}
// A check that was interrupted would keep the process alive.
process.exit();
