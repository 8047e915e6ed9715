import { Command } from "commander";
import * as z from "zod";
import { jsonOf } from "../shared/basics/text.ts";
import { helpWidth } from "../shared/config/flags.ts";
import { headOf, headText, stepLines } from "./doctor-report.ts";
import { NoStatus } from "./status/answer.ts";
import { askAdmin } from "./status/ask.ts";
import { adminAddress } from "./status/status.ts";

export const FROM_SERVER = "--from-server";

/** A server that is well answers at once: one that is stopped is found out sooner than a CONNECT would be answered. */
const ALIVE_MS = 5_000;
/** It then answers within its --connect-timeout, 8 s unless it is configured. */
const WITHIN_MS = 30_000;

const trialSchema = z.object({
  outcome: z.string(),
  sentence: z.string(),
  steps: z.array(
    z.object({
      step: z.string(),
      state: z.enum(["passed", "failed", "skipped", "not reached"]),
      ms: z.number().optional(),
      detail: z.string(),
    }),
  ),
});

interface Flags {
  readonly adminAddress: string;
  readonly json?: true;
}

/**
 * `culvert doctor --from-server CLUSTER TARGET`: a running server makes one connection as a caller of the cluster would
 * have it. Exit code 0: the target was reached; 1: it was not, or nobody could be asked; 2: a wrong command line.
 */
export async function runFromServer(argv: readonly string[], print: (text: string) => void): Promise<void> {
  await new Command("culvert doctor --from-server")
    .description("Has a running server make one connection, as a caller of the cluster would have it.")
    .argument("<cluster>", "Cluster whose agents are to make it.")
    .argument("<target>", "host:port as a caller asks for it.")
    .option("--admin-address <host:port>", "Admin port of the server.", "127.0.0.1:8095")
    .option("--json", "Everything that the server says.")
    .helpOption("-h, --help", "Show this help.")
    .configureHelp({ helpWidth: helpWidth() })
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "culvert doctor: ")) })
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
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
    if (json) print(`${JSON.stringify(said, null, 2)}\n`);
    else print(`${head}\n${stepLines(trial.steps)}\n${trial.sentence}\n${next(trial.outcome)}`);
    if (trial.outcome !== "ok") process.exitCode = 1;
  } catch (error) {
    if (!(error instanceof NoStatus)) throw error;
    process.stderr.write(`culvert doctor: ${error.message}\n`);
    process.exitCode = 1;
  }
}

/** What each outcome means, and what to do, is written down once, for `culvert explain`. */
function next(outcome: string): string {
  if (outcome === "ok") return "";
  const agents = "Run culvert doctor where the agent of the cluster runs, with its options.";
  return `Next: ${outcome === "no_agent" ? agents : `Run culvert explain ${outcome}: it says what to do.`}\n`;
}
