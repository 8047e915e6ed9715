import { Command, CommanderError } from "commander";
import { helpWidth } from "../shared/config/flags.ts";
import { version } from "../shared/runtime/build-info.ts";
import { STATUS_COLUMNS } from "./status-columns.ts";

// A reader that has seen enough (`| head`) closes the pipe; whatever the command does has to be ended in order all the same.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE" || process.exitCode === 1) return;
  process.stderr.write(`culvert: cannot write to stdout: ${error.message}\n`);
  process.exitCode = 1;
});

const MORE_NAMES = "Comma separated, besides localhost, 127.0.0.1 and ::1.";

// Each command loads its own modules only: `culvert agent` must not wait for what `demo` needs.
const program = new Command("culvert")
  .description("Reach Kubernetes clusters you have no network to: HTTP CONNECT in, one WebSocket out.")
  .version(version(), "-V, --version", "Show the version.")
  .helpOption("-h, --help", "Show this help.")
  .helpCommand(false)
  .configureHelp({ helpWidth: helpWidth() })
  .addHelpText(
    "after",
    "\nTo see it at work on this machine: culvert demo. The options of a command: culvert COMMAND --help.",
  )
  .enablePositionalOptions()
  .exitOverride();

service("server", "Take CONNECT requests and carry them through the agents' tunnels.", async (argv) => {
  const [{ runService }, { serverOptions }] = await Promise.all([
    import("./service.ts"),
    import("../server/options/options.ts"),
  ]);
  await runService(serverOptions, argv, async (values, log) => {
    const { startServer } = await import("../server/server.ts");
    return startServer(values, { log });
  });
});

service("agent", "Dial a server and reach targets in this network for it.", async (argv) => {
  const [{ runService }, { agentOptions }] = await Promise.all([import("./service.ts"), import("../agent/options.ts")]);
  await runService(agentOptions, argv, async (values, log) => {
    const { startAgent } = await import("../agent/agent.ts");
    return startAgent(values, { log });
  });
});

service("doctor", "Go an agent's way to its server, step by step, and say who is in it.", async (argv) => {
  const { runDoctor } = await import("./doctor.ts");
  await runDoctor(argv);
});

service("router", "Pass TLS connections on to the server of the name that they ask for.", async (argv) => {
  const [{ runService }, { routerOptions }] = await Promise.all([
    import("./service.ts"),
    import("../router/options.ts"),
  ]);
  await runService(routerOptions, argv, async (values, log) => {
    const { startRouter } = await import("../router/router.ts");
    return startRouter(values, { log });
  });
});

program
  .command("demo")
  .description("Server, agent and a sample target on this machine: one CONNECT step by step, then curl lines to paste.")
  .option("--dir <folder>", "Keep certificates and sockets here instead of in a temporary folder.")
  .option("--once", "End after the one CONNECT.")
  .action(async (options: { readonly dir?: string; readonly once?: true }) => {
    const { runDemo } = await import("./demo.ts");
    await runDemo({ dir: options.dir, once: options.once === true });
    // A process that runs out of work removes its signal handlers some milliseconds before it is gone. A Ctrl-C that npm
    // passes on late would end it by that signal; `exit` leaves them in place to the end.
    process.exit();
  });

const pki = program.command("pki").enablePositionalOptions();
pki
  .description("Write a set of certificates to try culvert by hand. Overwrites nothing.")
  .option("--dir <folder>", "Where to write them.", "pki")
  .option("--server-san <names>", `Names and addresses of the server, for callers. ${MORE_NAMES}`, list)
  .option("--cluster-san <names>", `Names and addresses of the server, for agents. ${MORE_NAMES}`, list)
  .option("--days <number>", "Days they are valid.", days, 365)
  .addHelpText(
    "after",
    "\nFor example:\n  culvert pki --server-san culvert-server.kube-system --cluster-san culvert.example.com",
  )
  .action(async (options: { dir: string; serverSan?: string[]; clusterSan?: string[]; days: number }) => {
    const { runPki } = await import("./pki.ts");
    const { dir, serverSan = [], clusterSan = [], days } = options;
    await runPki({ dir, serverSans: serverSan, clusterSans: clusterSan, days });
  });

pki
  .command("kubernetes")
  .description("Keep the certificates of an installation in Secrets: create those that are absent, renew old ones.")
  .requiredOption("--namespace <namespace>", "Namespace of the Secrets.")
  .requiredOption("--name <name>", "What the Secrets' names begin with: <name>-ca, -server, -caller, -agent.")
  .requiredOption("--server-names <names>", "Names and addresses of the server, comma separated.", list)
  .option("--agent-names <names>", "More of them, which only agents use.", list)
  .option("--days <number>", "Days that certificates are valid. The CA is valid for ten years.", days, 365)
  .option("--kubeconfig <file>", "How to reach the API server. Left out: by the ServiceAccount of this pod.")
  .addHelpText(
    "after",
    `
A certificate is renewed by the same CA when less than a third of its life is left or the names have changed. A Secret
without the label app.kubernetes.io/managed-by=culvert is never overwritten.

For example:
  culvert pki kubernetes --namespace culvert --name culvert-server --server-names culvert-server.culvert.svc`,
  )
  .action(async (options: PkiKubernetesFlags) => {
    const { runPkiKubernetes } = await import("./pki-kubernetes.ts");
    const { serverNames, agentNames = [], ...others } = options;
    await runPkiKubernetes({ ...others, serverNames: [...serverNames, ...agentNames] });
  });

interface PkiKubernetesFlags {
  readonly namespace: string;
  readonly name: string;
  readonly serverNames: readonly string[];
  readonly agentNames?: readonly string[];
  readonly days: number;
  readonly kubeconfig?: string;
}

program
  .command("status")
  .description("What a running server says of its clusters, agents and refusals; or an agent, or a router, of itself.")
  .option("--admin-address <host:port>", "Admin port; of an agent mostly 8094, of a router 8097.", "127.0.0.1:8095")
  .option("--cluster <name>", "Of a server's clusters only this one.")
  .option("--watch", "Again every 2 seconds, until Ctrl-C.")
  .option("--json", "Everything that the process says, instead of a table; with --watch a line each time.")
  .addHelpText("after", STATUS_COLUMNS)
  .action(async (options: { adminAddress: string; cluster?: string; watch?: true; json?: true }) => {
    const { runStatus, watchStatus } = await import("./status.ts");
    const { adminAddress, cluster, json = false } = options;
    if (options.watch !== true) return runStatus({ adminAddress, cluster, json });
    const { exitCodeOf, untilSignal } = await import("./until-signal.ts");
    const stop = new AbortController();
    void untilSignal((signal) => process.exit(exitCodeOf(signal))).signal.then(() => stop.abort());
    process.stdout.once("error", () => stop.abort());
    await watchStatus({ adminAddress, cluster, json }, { stop: stop.signal, isTerminal: process.stdout.isTTY });
    process.exit(); // in place of running out of work, as for the demo
  });

program
  .command("explain")
  .argument(
    "[code]",
    "Code of a CONNECT's outcome or of an agent's fault, or a WebSocket close code. None: all are listed.",
  )
  .description("What a code in a log, an answer or a metric means, and what to do.")
  .addHelpText("after", "\nFor example:\n  culvert explain dial_timeout")
  .action(async (code: string | undefined) => {
    const { runExplain } = await import("./explain.ts");
    runExplain(code);
  });

program
  .command("version")
  .description("Version and revision of culvert, and the Node.js and OpenSSL that it runs on.")
  .option("--json", "As one JSON object.")
  .action(async (options: { readonly json?: true }) => {
    const { runVersion } = await import("./version.ts");
    runVersion(options.json === true);
  });

program.command("help [command]", { hidden: true }).action(async (command?: string) => {
  const isKnown = program.commands.some((other) => other.name() === command);
  const line = command === undefined ? [] : [command];
  await program.parseAsync(isKnown || command === undefined ? [...line, "--help"] : line, { from: "user" });
});

/** What commander says of the command line, and of which command: it is written once it is known what was meant. */
let fault: { readonly text: string; readonly command: Command } | undefined;
for (const command of [program, ...program.commands, ...pki.commands]) {
  command.configureOutput({
    outputError: (text) => {
      fault = { text, command };
    },
  });
}

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    if (fault !== undefined) process.stderr.write(`culvert: ${await usageFault(fault.text, fault.command)}`);
    // A wrong command line is a wrong configuration: exit code 2, as for every other fault of it.
    process.exit(error.exitCode === 0 ? 0 : 2);
  }
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

/** Commander's words, but for `--once=1`, which takes no value, and for a flag that this command does not have. */
async function usageFault(text: string, command: Command): Promise<string> {
  const [, name, equals] = /^error: unknown option '(-[^=']+)(=?)/.exec(text) ?? [];
  if (name !== undefined) {
    const options = command.createHelp().visibleOptions(command);
    if (equals === "=" && options.some(({ short, long }) => name === short || name === long))
      return `${name} takes no value.\n`;
    const { flagHint } = await import("./flag-hint.ts");
    const hint = await flagHint(
      name,
      options.map((option) => option.name()),
    );
    if (hint !== undefined) return `There is no flag ${name}. ${hint}\n`;
  }
  return text.replace(/^error: /, "");
}

function list(text: string, before: readonly string[] = []): string[] {
  const items = text.split(",").map((item) => item.trim());
  return [...before, ...items.filter((item) => item !== "")];
}

function days(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text)) program.error(`error: --days needs a whole number from 1, not "${text}"`);
  return Number(text);
}
