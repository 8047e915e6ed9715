import { Command, CommanderError } from "commander";
import { buildInfo, version } from "../shared/basics/program.ts";
import { helpWidth } from "../shared/config/flags.ts";
import type { ConnectOptions } from "./connect.ts";
import type { PkiKubernetesOptions } from "./pki/kubernetes.ts";
import type { RunPkiOptions } from "./pki/pki.ts";
import { TABLE_COMMANDS } from "./table-commands.ts";

// A reader such as `head` may close the pipe early. The command still has to finish its work and end cleanly.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE" || process.exitCode === 1) return;
  process.stderr.write(`culvert: cannot write to stdout: ${error.message}\n`);
  process.exitCode = 1;
});

const STATUS_COLUMNS = `
Columns of a cluster:
  AGENTS       Agents that take connections. suspended: they have lost their connection and may return;
               draining: they take no more.
  WAITING      CONNECTs without an answer yet.
  OPEN         Connections that are open, or that an agent is opening.
  ENDED-OK     Connections that were opened and have ended, since the server got the cluster.
  ENDED-BADLY  CONNECTs that were refused, failed or cancelled, and connections that were lost, since then.
  BYTES        Bytes carried in both directions since then, also by open connections.
               ENDED/S and BYTES/S are means of ten seconds.
  HELD-BY      Of several servers: those that hold an agent which takes connections.
  LIMITS-HIT   Limits of the cluster's document that refused, ended or slowed something since then, and how often.

Columns of an agent:
  LINK         up: it has a connection and takes connections; suspended: it has lost its connection and may resume the
               link; draining: it takes no more; probe: of culvert doctor.
  RTT          Round trip time of a ping that was sent for this answer; with ~, if none has come: how long
               acknowledgements took last.
  RATE         Bytes a second that have just come in; and that went out when there was last more to send than the line
               took.

Columns of a server, of several:
  SERVERS      How many servers there are, as far as this one knows.
  CLUSTERS     Clusters of which it holds an agent that takes connections, of those that it serves.
  HELD         Memory that its tunnels hold, and the most that they may hold.
  REFUSED-AT   Servers that have refused agents or callers lately, how often, and the newest refusal.

Exit code: 0 everything has answered, 1 something has not, 2 the command line is wrong.`;

const MORE_NAMES = "Comma separated. localhost, 127.0.0.1 and ::1 are always included.";

// Each command loads its own modules only, so that `culvert agent` does not wait for those of `demo`.
const program = new Command("culvert")
  .description("Reach Kubernetes clusters you have no network to: HTTP CONNECT in, one WebSocket out.")
  .version(version(), "-V, --version", "Show the version.")
  .helpOption("-h, --help", "Show this help.")
  .helpCommand(false)
  .configureHelp({ helpWidth: helpWidth() })
  .addHelpText(
    "after",
    "\nculvert demo shows it at work on this machine. culvert COMMAND --help shows the options of a command.",
  )
  .enablePositionalOptions()
  .exitOverride();

for (const { name, alias, summary, run } of TABLE_COMMANDS) {
  const command = program
    .command(name)
    .description(summary)
    .usage("[options]")
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action((_options: unknown, { args }: Command) => run(args));
  if (alias !== undefined) command.alias(alias);
}

program
  .command("demo")
  .description(
    "Run server, agent and a sample target on this machine: show one CONNECT step by step, then curl commands to paste.",
  )
  .option("--dir <folder>", "Keep certificates and sockets in this folder instead of a temporary one.")
  .option("--once", "Exit after the one CONNECT.")
  .action(async (options: { readonly dir?: string; readonly once?: true }) => {
    const { runDemo } = await import("./demo/demo.ts");
    await runDemo({ dir: options.dir, once: options.once === true });
    // A process that runs out of work removes its signal handlers some milliseconds before it ends. A late Ctrl-C
    // that npm passes on would end it by that signal; process.exit() keeps the handlers to the end.
    process.exit();
  });

const pki = program.command("pki").enablePositionalOptions();
pki
  .description("Write a set of certificates for trying out culvert by hand. No file is overwritten.")
  .option("--dir <folder>", "Folder for the certificates.", "pki")
  .option(
    "--server-san <names>",
    `Names and addresses of the server for callers. ${MORE_NAMES}`,
    names(pki, "--server-san"),
  )
  .option(
    "--cluster-san <names>",
    `Names and addresses of the server for agents. ${MORE_NAMES}`,
    names(pki, "--cluster-san"),
  )
  .option("--days <number>", "Days that the certificates are valid.", days(pki), 365)
  .addHelpText(
    "after",
    "\nFor example:\n  culvert pki --server-san culvert-server.kube-system --cluster-san culvert.example.com",
  )
  .action(async (options: RunPkiOptions) => {
    const { runPki } = await import("./pki/pki.ts");
    await runPki(options);
  });

const kubernetes = pki.command("kubernetes");
kubernetes
  .description("Keep the certificates of an installation in Secrets: create missing ones and renew old ones.")
  .requiredOption("--namespace <namespace>", "Namespace of the Secrets.")
  .requiredOption(
    "--name <name>",
    "Prefix of the names of the Secrets: <name>-ca, <name>-server, <name>-caller, <name>-agent.",
  )
  .requiredOption("--server-names <names>", "Names and addresses of the server, comma separated.", list)
  .option(
    "--agent-names <names>",
    "More names and addresses of the server, which only agents use, comma separated.",
    list,
  )
  .option("--days <number>", "Days that certificates are valid. The CA is valid for ten years.", days(kubernetes), 365)
  .option("--peers", "Keep the Secret <name>-peer, too, by which the servers of a fleet know each other.")
  .option("--kubeconfig <file>", "How to reach the API server. Without it, the ServiceAccount of this pod is used.")
  .addHelpText(
    "after",
    `
A certificate is renewed by the same CA when less than a third of its lifetime is left or its names have changed. A
Secret without the label app.kubernetes.io/managed-by=culvert is never overwritten.

For example:
  culvert pki kubernetes --namespace culvert --name culvert-server --server-names culvert-server.culvert.svc`,
  )
  .action(async (options: PkiKubernetesOptions & { readonly agentNames?: readonly string[] }) => {
    const { runPkiKubernetes } = await import("./pki/kubernetes.ts");
    const { serverNames, agentNames = [], ...others } = options;
    await runPkiKubernetes({ ...others, serverNames: [...serverNames, ...agentNames] });
  });

program
  .command("status")
  .description("Show the clusters, agents and refusals of a running server, or the state of a running agent or router.")
  .option(
    "--admin-address <host:port>",
    "Address of the admin port. The default port of an agent is 8094, of a router 8097. Give several, comma separated or each with the flag, to show the servers of a fleet in one table. (default: 127.0.0.1:8095)",
    (text: string, before: string[] = []) => [...before, ...text.split(",")],
  )
  .option("--cluster <name>", "Show only this cluster; where several servers are asked, with its agents.")
  .option("--watch", "Show it again every 2 seconds, until Ctrl-C.")
  .option("--json", "Print the whole status as JSON instead of a table; with --watch, one line each time.")
  .addHelpText("after", STATUS_COLUMNS)
  .action(async (options: { adminAddress?: string[]; cluster?: string; watch?: true; json?: true }) => {
    const { runStatus, watchStatus } = await import("./status/status.ts");
    const { adminAddress: adminAddresses = ["127.0.0.1:8095"], cluster, json = false } = options;
    if (options.watch !== true) return runStatus({ adminAddresses, cluster, json });
    const { untilSignal } = await import("../shared/runtime/run.ts");
    const stop = new AbortController();
    void untilSignal().signal.then(() => stop.abort());
    process.stdout.once("error", () => stop.abort());
    await watchStatus({ adminAddresses, cluster, json }, { stop: stop.signal, isTerminal: process.stdout.isTTY });
    process.exit(); // keeps the signal handlers to the end, as for the demo
  });

program
  .command("connect")
  .argument("<host:port>", "Target, as a caller asks for it.")
  .description("Make one CONNECT through a server, step by step, then join it with stdin and stdout, as nc does.")
  .option("--server <host:port>", "Callers' port of the server.", "127.0.0.1:8090")
  .option("--uds-name <path>", "Unix socket of the server, in place of --server.")
  .option("--ca-cert <file>", "CA certificates (PEM) that the server's certificate must come from.")
  .option("--cert <file>", "Certificate (PEM) of the caller.")
  .option("--key <file>", "Private key (PEM) of --cert.")
  .option("--connect-timeout <duration>", "Time until the target is connected.", "10s")
  .option("-q, --quiet", "Say nothing but what has failed.")
  .addHelpText(
    "after",
    `
Steps and their times go to stderr. Exit code: 0 the target was reached, 1 it was not or the connection was lost,
2 the command line is wrong.

For example, in ~/.ssh/config:
  ProxyCommand culvert connect --quiet --server culvert:8090 --ca-cert ca.crt --cert tls.crt --key tls.key %h:%p`,
  )
  .action(async (target: string, options: ConnectOptions) => {
    const { runConnect } = await import("./connect.ts");
    process.exit(await runConnect(target, options, process));
  });

program
  .command("explain")
  .argument(
    "[code]",
    "Outcome of a CONNECT, its HTTP status, or its error type in Proxy-Status. Without it, all outcomes are listed.",
  )
  .description("Explain an outcome from a log, an answer or a metric, and say what to do.")
  .addHelpText("after", "\nFor example:\n  culvert explain dial_timeout")
  .action(async (code: string | undefined) => {
    const { runExplain } = await import("./explain.ts");
    runExplain(code);
  });

program
  .command("version")
  .description("Show version and revision of culvert, and the versions of Node.js and OpenSSL.")
  .option("--json", "Print one JSON object.")
  .action(async (options: { readonly json?: true }) => {
    const { revision, node } = buildInfo();
    const { boringssl } = process.versions;
    const openssl = boringssl === undefined ? process.versions.openssl : `none: BoringSSL ${boringssl}`;
    const text = `culvert ${version()}\nrevision ${revision}\nNode.js ${node}\nOpenSSL ${openssl}\n`;
    const json = JSON.stringify({ version: version(), revision, node, openssl });
    process.stdout.write(options.json === true ? `${json}\n` : text);
  });

program
  .command("completion")
  .argument("<shell>", "bash, zsh or fish.")
  .description("Print a script by which a shell completes commands, options and their values.")
  .addHelpText("after", "\nFor example:\n  source <(culvert completion bash)")
  .action(async (shell: string) => {
    const { completion } = await import("./reference/completion.ts");
    process.stdout.write(completion(shell, await everyCommand()));
  });

program
  .command("manual")
  .argument("[command...]", "Command, such as pki kubernetes.")
  .description("Print the manual page of a command, for man.")
  .addHelpText("after", "\nFor example:\n  culvert manual server | man -l -")
  .action(async (command: readonly string[]) => {
    const { manualPage } = await import("./reference/manual.ts");
    process.stdout.write(manualPage(["culvert", ...command].join(" "), await everyCommand(), version()));
  });

program
  .command("demo-target <port> <cert> <key>", { hidden: true })
  .action(async (port: string, cert: string, key: string) => {
    const { runSampleTarget } = await import("./demo/sample-target.ts");
    runSampleTarget(port, cert, key);
  });

program.command("help [command]", { hidden: true }).action(async (command?: string) => {
  const isKnown = program.commands.some((other) => other.name() === command);
  const line = command === undefined ? [] : [command];
  await program.parseAsync(isKnown || command === undefined ? [...line, "--help"] : line, { from: "user" });
});

/** Commander's message about the command line, and its command. It is written after a hint has been looked up. */
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
    if (fault !== undefined) {
      process.stderr.write(`culvert: ${await usageFault(fault.text, fault.command)}`);
      process.stderr.write(`See: ${fullName(fault.command)} --help\n`);
    }
    // A wrong command line is a wrong configuration, which is exit code 2. A help that has been shown is left to end by
    // itself, since a stdout that cannot be written is reported later.
    if (error.exitCode !== 0) process.exitCode = 2;
  } else {
    // Recognized by name, since the class is in a module of the commands. Any other error is a bug: Node shows its
    // stack.
    if (!(error instanceof Error) || error.name !== "ConfigError") throw error;
    process.stderr.write(`culvert: ${error.message}\n`);
    process.exitCode = 2;
  }
}

async function everyCommand() {
  const { commandEntries } = await import("./reference/commands.ts");
  return commandEntries(program, TABLE_COMMANDS);
}

/** A command as it is typed, such as "culvert pki kubernetes". */
function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}

/** Commander's message, except for `--once=1`, which takes no value, and for a flag that this command does not have. */
async function usageFault(text: string, command: Command): Promise<string> {
  const [, name, equals] = /^error: unknown option '(-[^=']+)(=?)/.exec(text) ?? [];
  if (name !== undefined) {
    const options = command.createHelp().visibleOptions(command);
    if (equals === "=" && options.some(({ short, long }) => name === short || name === long))
      return `${name} takes no value.\n`;
    const { flagHint } = await import("./service.ts");
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

/** As `list`, but an empty text is refused: most often it is a variable of a shell that is not set. */
function names(command: Command, flag: string) {
  return (text: string, before?: readonly string[]): string[] => {
    if (list(text).length === 0)
      command.error(
        `error: ${flag} needs at least one name or address, not "${text}": give one, or leave the flag out`,
      );
    return list(text, before);
  };
}

function days(command: Command) {
  return (text: string): number => {
    if (!/^[1-9]\d{0,4}$/.test(text))
      command.error(`error: --days needs a whole number from 1 to 99999, not "${text}"`);
    return Number(text);
  };
}
