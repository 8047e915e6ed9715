import { hostname } from "node:os";
import { Command } from "commander";
import * as z from "zod";
import { diagnose, doctorOptions } from "../agent/doctor/doctor.ts";
import { version } from "../shared/basics/program.ts";
import { jsonOf, shellQuoted, withoutSecret } from "../shared/basics/text.ts";
import { helpText, helpWidth, printConfig } from "../shared/config/flags.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { printable } from "../shared/outcomes.ts";
import { flagHint } from "./service.ts";
import { askAdmin, NoStatus } from "./status/ask.ts";
import { adminAddress } from "./status/status.ts";
import { reportTo, stepSchema } from "./step-report.ts";

/**
 * `culvert doctor`: connects as an agent does, and says what is in the way. Exit code 0: nothing; 1: something; 2: the
 * options cannot be used.
 */
export async function runDoctor(
  argv: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  print: (text: string) => void = (text) => process.stdout.write(text),
): Promise<void> {
  const others = argv.filter((word) => word !== FROM_SERVER);
  if (others.length < argv.length) return runFromServer(others, print);
  const { values, problems, warnings, sources, ...asked } = await readOptions(doctorOptions, {
    argv,
    env,
    hint: flagHint,
  });
  if (asked.help !== undefined) {
    print(helpText(doctorOptions, asked.help));
    return;
  }
  if (asked.printConfig) print(printConfig(doctorOptions, values, sources));
  const head = headOf(argv);
  for (const sentence of [...problems, ...warnings]) process.stderr.write(`culvert doctor: ${sentence}\n`);
  if (problems.length > 0) {
    process.stderr.write("See: culvert doctor --help\n");
    if (values.json) print(reportJson({ ...head, healthy: false, problems, servers: [] }));
    process.exitCode = 2;
    return;
  }
  if (asked.printConfig) return;
  if (!values.json) print(headText(head));
  const report = await diagnose(values, env, reportTo(values.json ? () => {} : print));
  if (values.json) print(reportJson({ ...head, ...report }));
  if (!report.healthy) process.exitCode = 1;
}

export function reportJson(report: unknown): string {
  return `${JSON.stringify(report, null, 2)}\n`;
}

/**
 * The head of a report: a later reader has to know what was run, where and when. `argv`: the words after `culvert
 * doctor`; their passwords are left out.
 */
export function headOf(argv: readonly string[], now = new Date()) {
  return {
    version: version(),
    node: process.version,
    host: hostname(),
    date: now.toISOString(),
    command: ["culvert doctor", ...argv.map(shownWord)].join(" "),
  };
}

export function headText({ version, node, host, date, command }: ReturnType<typeof headOf>): string {
  return `culvert ${version}, Node ${node}, on ${printable(host)}, ${date}\n$ ${command}\n`;
}

function shownWord(word: string): string {
  const [, flag = "", value = word] = /^(--?[\w-]+=)(.*)$/s.exec(word) ?? [];
  const text = printable(`${flag}${withoutSecret(value)}`, MAX_WORD);
  // The stars of a masked secret need no quotes: nobody runs this line again as it is.
  return /^[\w@%+=:,./*-]+$/.test(text) ? text : shellQuoted(text);
}

const MAX_WORD = 2_000;

// ── --from-server ────────────────────────────────────────────────────────────────────────────────────────────────────

const FROM_SERVER = "--from-server";
const SEE_FROM_SERVER = `See: culvert doctor ${FROM_SERVER} --help\n`;

/** A server that is well answers at once: one that is stopped is found out sooner than a CONNECT would be answered. */
const ALIVE_MS = 5_000;
/** A server that has answered once answers within its --connect-timeout, 8 s unless it is configured. */
const WITHIN_MS = 30_000;

const trialSchema = z.object({ outcome: z.string(), sentence: z.string(), steps: z.array(stepSchema) });

interface Flags {
  readonly adminAddress: string;
  readonly json?: true;
}

/**
 * `culvert doctor --from-server CLUSTER TARGET`: a running server makes one connection as a caller of the cluster would
 * have it. Exit code 0: the target was reached; 1: it was not, or nobody could be asked. Rejects with an error of
 * commander for a wrong command line, and for a help that was asked for.
 */
async function runFromServer(argv: readonly string[], print: (text: string) => void): Promise<void> {
  await new Command("culvert doctor --from-server")
    .description("Ask a running server to make one connection, as for a caller of the cluster.")
    .argument("<cluster>", "Cluster whose agents are to make it.")
    .argument("<target>", "host:port as a caller asks for it.")
    .option("--admin-address <host:port>", "Admin port of the server.", "127.0.0.1:8095")
    .option("--json", "Print everything that the server says as JSON.")
    .helpOption("-h, --help", "Show this help.")
    .configureHelp({ helpWidth: helpWidth() })
    .configureOutput({
      outputError: (text, write) => write(`${text.replace(/^error: /, "culvert doctor: ")}${SEE_FROM_SERVER}`),
    })
    .exitOverride()
    .action((cluster: string, target: string, flags: Flags) => {
      const head = headText(headOf([FROM_SERVER, ...argv]));
      return tryFrom({ cluster, target }, flags, head, print);
    })
    .parseAsync([...argv], { from: "user" });
}

async function tryFrom(
  asked: { readonly cluster: string; readonly target: string },
  { adminAddress: text, json }: Flags,
  head: string,
  print: (text: string) => void,
): Promise<void> {
  const address = adminAddress(text);
  try {
    await askAdmin(address, { path: "/livez", withinMs: ALIVE_MS });
    const { status, body } = await askAdmin(address, { path: "/trial", body: asked, withinMs: WITHIN_MS });
    const said = status === 200 ? jsonOf(body) : undefined;
    const { data: trial } = trialSchema.safeParse(said);
    if (trial === undefined) {
      throw new NoStatus(`${text} is no admin port of a culvert server, or of one of another version (HTTP ${status})`);
    }
    if (json) print(reportJson(said));
    else {
      const { onStep, onVerdict } = reportTo(print);
      print(`${head}\n`);
      trial.steps.forEach(onStep);
      onVerdict({ sentence: trial.sentence, next: next(trial.outcome) });
    }
    if (trial.outcome !== "ok") process.exitCode = 1;
  } catch (error) {
    if (!(error instanceof NoStatus)) throw error;
    process.stderr.write(`culvert doctor: ${error.message}\n`);
    process.exitCode = 1;
  }
}

/** The meaning of each outcome, and the cure, are written down once, for `culvert explain`. */
function next(outcome: string): string {
  if (outcome === "ok") return "";
  if (outcome === "no_agent") return "Run culvert doctor where the agent of the cluster runs, with its options.";
  return `Run culvert explain ${outcome}: it says what to do.`;
}
