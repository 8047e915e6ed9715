import { setTimeout as sleep } from "node:timers/promises";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { nearest } from "../../shared/basics/text.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { printable } from "../../shared/outcomes.ts";
import { askStatus, NoStatus, readAgentStatus, readRouterStatus, readStatus, type StatusReport } from "./ask.ts";
import { askFleet, fleetOf, fleetTable } from "./fleet.ts";
import { agentTable, routerTable, statusTable } from "./table.ts";

interface StatusOptions {
  /** `host:port` of an admin port, or of the admin ports of several servers. */
  readonly adminAddresses: readonly string[];
  /** Prints the whole status as JSON instead of a table. */
  readonly json: boolean;
  /** Shows only this cluster of a server. */
  readonly cluster?: string | undefined;
}

type Print = (text: string) => void;
const toStdout: Print = (text) => process.stdout.write(text);

/** `culvert status`: prints the status of what runs. Exit code 1: some of it did not answer. */
export async function runStatus(options: StatusOptions, print: Print = toStdout): Promise<void> {
  const ask = questionOf(options);
  try {
    const { table, json, complete } = await ask();
    print(options.json ? `${JSON.stringify(json, null, 2)}\n` : table());
    if (!complete) process.exitCode = 1;
  } catch (error) {
    complain(error);
    process.exitCode = 1;
  }
}

const EVERY_MS = 2_000;
const CLEAR = "\x1b[H\x1b[2J\x1b[3J";

interface Watching {
  /** Ends it. */
  readonly stop: AbortSignal;
  readonly isTerminal: boolean;
  readonly everyMs?: number;
}

/** `culvert status --watch`: prints the status every 2 s. A process that does not answer may do so the next time. */
export async function watchStatus(options: StatusOptions, watching: Watching, print: Print = toStdout): Promise<void> {
  const ask = questionOf(options);
  const { stop, isTerminal, everyMs = EVERY_MS } = watching;
  while (!stop.aborted) {
    try {
      const { table, json } = await ask(stop);
      if (stop.aborted) return;
      if (options.json) print(`${JSON.stringify(json)}\n`);
      else print(isTerminal ? `${CLEAR}${table()}` : `${table()}\n`);
    } catch (error) {
      if (!stop.aborted) complain(error);
    }
    await sleep(everyMs, undefined, { signal: stop }).catch(() => {});
  }
}

/** The answer in both forms. */
interface Shown {
  readonly json: object;
  table(): string;
  /** Everything that was asked has answered. */
  readonly complete: boolean;
}

/** Throws a `ConfigError`. The function that it returns rejects with `NoStatus`. */
function questionOf({ adminAddresses, cluster }: StatusOptions): (stop?: AbortSignal) => Promise<Shown> {
  const [first, ...others] = adminAddresses.map(adminAddress);
  if (first === undefined) throw new ConfigError("--admin-address is empty: give the address of an admin port.");
  if (others.length > 0) return (stop) => shownFleet([first, ...others], cluster, stop);
  return async (stop) => {
    const said = select(await askStatus(first, undefined, stop), cluster);
    return { json: said.all, table: () => tableOf(said), complete: true };
  };
}

async function shownFleet(addresses: readonly Target[], cluster?: string, stop?: AbortSignal): Promise<Shown> {
  const answers = await askFleet(addresses, stop);
  const fleet = fleetOf(answers, cluster);
  const shown = answers.map((answer) => {
    if ("problem" in answer) return answer;
    const all = cluster === undefined ? answer.all : onlyCluster(answer.all, cluster);
    return { address: answer.address, status: all };
  });
  return {
    json: { servers: shown, problems: fleet.problems },
    table: () => fleetTable(answers, fleet, cluster !== undefined),
    complete: fleet.problems.length === 0,
  };
}

function complain(error: unknown): void {
  if (!(error instanceof NoStatus)) throw error;
  process.stderr.write(`culvert status: ${error.message}\n`);
}

function tableOf({ kind, all }: StatusReport): string {
  if (kind === "agent") return agentTable(readAgentStatus(all));
  return kind === "router" ? routerTable(readRouterStatus(all)) : statusTable(readStatus(all));
}

/** Keeps only the wanted cluster of a server, without refusals that belong to no cluster. */
function select(said: StatusReport, wanted: string | undefined): StatusReport {
  if (wanted === undefined) return said;
  if (said.kind !== "server")
    throw new NoStatus(`--cluster is for a server, and this is the --admin-port of culvert ${said.kind}`);
  const all = onlyCluster(said.all, wanted);
  if (all.clusters.length > 0) return { kind: said.kind, all };
  const { clusters } = said.all as Clustered;
  const guess = nearest(
    wanted,
    clusters.map(({ cluster }) => String(cluster)),
  );
  const cure = guess === undefined ? "culvert status without --cluster shows all" : `did you mean ${guess}?`;
  throw new NoStatus(`the server has no cluster "${printable(wanted, 63)}": ${printable(cure)}`);
}

interface Clustered {
  readonly clusters: readonly { readonly cluster?: unknown }[];
  readonly refusals: readonly unknown[];
}

function onlyCluster(all: object, wanted: string): Clustered {
  const { clusters } = all as Clustered;
  return { ...all, clusters: clusters.filter(({ cluster }) => cluster === wanted), refusals: [] };
}

/** Throws a `ConfigError`. */
export function adminAddress(text: string): Target {
  try {
    return parseTarget(text);
  } catch (error) {
    const sentence = `--admin-address needs the host and port of an admin port, such as 127.0.0.1:8095, not "${text}"`;
    throw new ConfigError(sentence, { cause: error });
  }
}
