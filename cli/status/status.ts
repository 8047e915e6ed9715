import { setTimeout as sleep } from "node:timers/promises";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { nearest } from "../../shared/basics/text.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { printable } from "../../shared/outcomes.ts";
import { NoStatus, readAgentStatus, readRouterStatus, readStatus } from "./answer.ts";
import { askStatus, type StatusReport } from "./ask.ts";
import { agentTable, routerTable, statusTable } from "./table.ts";

export interface StatusOptions {
  /** `host:port` of an admin port. */
  readonly adminAddress: string;
  /** Prints the whole status as JSON instead of a table. */
  readonly json: boolean;
  /** Shows only this cluster of a server. */
  readonly cluster?: string | undefined;
}

type Print = (text: string) => void;
const toStdout: Print = (text) => process.stdout.write(text);

/** `culvert status`: prints the status of a running server, agent or router. Exit code 1: it did not answer. */
export async function runStatus(options: StatusOptions, print: Print = toStdout): Promise<void> {
  const address = adminAddress(options.adminAddress);
  try {
    const said = select(await askStatus(address), options.cluster);
    print(options.json ? `${JSON.stringify(said.all, null, 2)}\n` : tableOf(said));
  } catch (error) {
    complain(error);
    process.exitCode = 1;
  }
}

const EVERY_MS = 2_000;
const CLEAR = "\x1b[H\x1b[2J\x1b[3J";

export interface Watching {
  /** Ends it. */
  readonly stop: AbortSignal;
  readonly isTerminal: boolean;
  readonly everyMs?: number;
}

/** `culvert status --watch`: prints the status every 2 s. A process that does not answer may do so the next time. */
export async function watchStatus(options: StatusOptions, watching: Watching, print: Print = toStdout): Promise<void> {
  const address = adminAddress(options.adminAddress);
  const { stop, isTerminal, everyMs = EVERY_MS } = watching;
  while (!stop.aborted) {
    try {
      const said = select(await askStatus(address, undefined, stop), options.cluster);
      if (options.json) print(`${JSON.stringify(said.all)}\n`);
      else print(isTerminal ? `${CLEAR}${tableOf(said)}` : `${tableOf(said)}\n`);
    } catch (error) {
      if (!stop.aborted) complain(error);
    }
    await sleep(everyMs, undefined, { signal: stop }).catch(() => {});
  }
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
  const { clusters } = said.all as { readonly clusters: readonly { readonly cluster?: unknown }[] };
  const chosen = clusters.filter(({ cluster }) => cluster === wanted);
  if (chosen.length > 0) return { kind: said.kind, all: { ...said.all, clusters: chosen, refusals: [] } };
  const guess = nearest(
    wanted,
    clusters.map(({ cluster }) => String(cluster)),
  );
  const cure = guess === undefined ? "culvert status without --cluster shows all" : `did you mean ${guess}?`;
  throw new NoStatus(`the server has no cluster "${printable(wanted, 63)}": ${printable(cure)}`);
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
