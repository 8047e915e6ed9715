#!/usr/bin/env node
import { Command } from "commander";
import { version } from "../shared/process/version.ts";

// Each command loads its own modules only: `culvert agent` must not wait for what `demo` needs.
const program = new Command("culvert")
  .description("Reach Kubernetes clusters you have no network to: HTTP CONNECT in, one WebSocket out.")
  .version(version(), "-V, --version")
  .helpCommand(false)
  .enablePositionalOptions()
  // A wrong command line is a wrong configuration: exit code 2, as for every other fault of it.
  .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));

service("server", "take CONNECT requests and carry them through the agents' tunnels", async (argv) => {
  const [{ runService }, { serverOptions }] = await Promise.all([
    import("./service.ts"),
    import("../server/options.ts"),
  ]);
  await runService(serverOptions, argv, async (values, log) => {
    const { startServer } = await import("../server/server.ts");
    return startServer(values, { log });
  });
});

service("agent", "dial a server and reach targets in this network for it", async (argv) => {
  const [{ runService }, { agentOptions }] = await Promise.all([import("./service.ts"), import("../agent/options.ts")]);
  await runService(agentOptions, argv, async (values, log) => {
    const { startAgent } = await import("../agent/agent.ts");
    return startAgent(values, { log });
  });
});

program
  .command("demo")
  .description("server, agent and a sample target on this machine: one CONNECT step by step, then curl lines to paste")
  .option("--dir <folder>", "keep certificates and sockets here instead of in a temporary folder")
  .option("--once", "end after the one CONNECT")
  .action(async (options: { readonly dir?: string; readonly once?: true }) => {
    const { runDemo } = await import("./demo.ts");
    await runDemo({ dir: options.dir, once: options.once === true });
  });

program
  .command("pki")
  .description("write a set of certificates to try culvert by hand; overwrites nothing")
  .option("--dir <folder>", "where to write them", "pki")
  .option("--server-san <names>", "more names and addresses of the server, for callers; comma separated", list, [])
  .option("--cluster-san <names>", "more names and addresses of the server, for agents; comma separated", list, [])
  .option("--days <number>", "days they are valid", days, 365)
  .action(async (options: { dir: string; serverSan: string[]; clusterSan: string[]; days: number }) => {
    const { runPki } = await import("./pki.ts");
    await runPki({ ...options, serverSans: options.serverSan, clusterSans: options.clusterSan });
  });

try {
  await program.parseAsync();
} catch (error) {
  // By name, since its module belongs to the commands. Anything else is a bug, and Node shows its stack.
  if (!(error instanceof Error) || error.name !== "ConfigError") throw error;
  process.stderr.write(`culvert: ${error.message}\n`);
  process.exitCode = 2;
}

/** A command whose options are a table of its own: commander only hands the rest of the line over. */
function service(name: string, summary: string, action: (argv: readonly string[]) => Promise<void>): void {
  program
    .command(name)
    .description(summary)
    .usage("[options]")
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action((_options: unknown, command: Command) => action(command.args));
}

function list(text: string, before: readonly string[]): string[] {
  const items = text.split(",").map((item) => item.trim());
  return [...before, ...items.filter((item) => item !== "")];
}

function days(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) program.error(`error: --days needs a whole number from 1, not "${text}"`);
  return Number(text);
}
