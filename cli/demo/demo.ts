import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { jsonOf, shellQuoted } from "../../shared/basics/text.ts";
import { MAX_SOCKET_PATH } from "../../shared/config/listen-address.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { readableLine } from "../../shared/runtime/logger.ts";
import { exitCodeOf, untilSignal } from "../../shared/runtime/run.ts";
import { createPki, type Pki, refuseToOverwrite } from "../pki/pki.ts";
import { connectOnce } from "./connect.ts";
import { type Child, ChildDied, Children, choosePorts, type DemoFolder, demoFolder, endWithNpm } from "./resources.ts";

interface DemoOptions {
  /** Folder for certificates and the socket. By default it is a temporary one, which the demo removes at its end. */
  readonly dir?: string | undefined;
  /** End after the one CONNECT. */
  readonly once?: boolean;
}

/** Ports of the demo; another free port replaces one that is taken. */
const DEMO_PORTS = { callers: 8090, agents: 8091, serverHealth: 8092, admin: 8095, agentHealth: 8093, target: 8444 };
type DemoPorts = typeof DEMO_PORTS;

const PORT_OF: Readonly<Record<keyof DemoPorts, string>> = {
  callers: "callers",
  agents: "agents",
  serverHealth: "the server's health",
  admin: "the server's status page",
  agentHealth: "the agent's health",
  target: "the sample target",
};

const READY_MS = 30_000;

/**
 * `culvert demo`: runs server, agent and a sample target on this machine, shows one CONNECT, then curl commands to
 * paste.
 */
export async function runDemo(options: DemoOptions): Promise<void> {
  const out = printer();
  let follow: ((line: string) => void) | undefined;
  let shown = false;
  const outputFailed = new Promise<void>((resolve) => process.stdout.once("error", () => resolve()));
  const children = new Children((name, line) => follow?.(`  ${logLine(name, line)}`));
  let folder: DemoFolder | undefined;
  const stop = untilSignal(() => {
    children.kill();
    folder?.remove();
  });
  endWithNpm();

  const show = async (): Promise<void> => {
    out.heading("culvert demo: a CONNECT through a server and an agent's WebSocket tunnel to a target");
    folder = await demoFolder(options.dir);
    const { ports, pki, targetCa } = await start(folder.path, children, out);
    out.heading("One CONNECT, as kube-apiserver makes it:");
    const { files } = pki;
    const [ca, cert, key] = await Promise.all(
      [files["server-ca.crt"], files["client.crt"], files["client.key"]].map((file) => readFile(file, "utf8")),
    );
    const proxy = { port: ports.callers, ca: ca ?? "", cert: cert ?? "", key: key ?? "" };
    const target = { host: "localhost", port: ports.target, ca: await readFile(targetCa, "utf8") };
    const lines: string[] = []; // log lines of this CONNECT, which are printed below
    follow = (line) => lines.push(line);
    await connectOnce({ proxy, target }, stopwatch(out.step));
    shown = true;
    if (options.once) return;
    printCommands(ports, pki, targetCa, out);
    lines.forEach(out.command);
    follow = out.command;
    // Nobody reads a log whose output is a full disk or a pipe that was closed.
    await Promise.race([stop.signal, children.died, outputFailed]);
  };

  const showing = show();
  try {
    await Promise.race([showing, children.died, stop.signal]);
  } catch (error) {
    process.exitCode = error instanceof ConfigError ? 2 : 1;
    explain(error, out);
  } finally {
    follow = undefined;
    const signal = stop.received();
    if (signal !== undefined) {
      out.line("\nEnding.");
      // Ctrl-C is the normal end of a demo, but an interruption before it has shown anything.
      if (!shown) process.exitCode = exitCodeOf(signal);
    }
    await children.close();
    // An interrupted demo fails at its next step. Until then it may still write into the folder.
    await showing.catch(() => {});
    folder?.remove();
  }
}

/** Makes certificates, then starts target, server and agent, and prints a line when each is ready. */
async function start(
  dir: string,
  children: Children,
  out: Printer,
): Promise<{ ports: DemoPorts; pki: Pki; targetCa: string }> {
  const timed = stopwatch(out.step);
  refuseToOverwrite(dir, TARGET_FILES);
  const pki = await createPki({ dir, days: 30 });
  const targetFiles = await targetCertificate(dir);
  timed(`throwaway certificates (two CAs, and one for the target) in ${dir}`);

  const ports = await choosePorts(DEMO_PORTS);
  for (const name of Object.keys(ports) as (keyof DemoPorts)[]) {
    if (ports[name] === DEMO_PORTS[name]) continue;
    out.note(`Port ${DEMO_PORTS[name]} is taken. The port of ${PORT_OF[name]} is ${ports[name]}.`);
  }

  const { files } = pki;
  const target = children.start("target", ["demo-target", String(ports.target), targetFiles.cert, targetFiles.key]);
  const socket = join(dir, "culvert.sock");
  const server = children.start("server", [
    "server",
    ...(socket.length > MAX_SOCKET_PATH ? [] : [`--uds-name=${socket}`]),
    `--server-port=${ports.callers}`,
    "--server-bind-address=127.0.0.1",
    `--server-cert=${files["server.crt"]}`,
    `--server-key=${files["server.key"]}`,
    `--server-ca-cert=${files["server-ca.crt"]}`,
    `--agent-port=${ports.agents}`,
    "--agent-bind-address=127.0.0.1",
    `--cluster-cert=${files["cluster.crt"]}`,
    `--cluster-key=${files["cluster.key"]}`,
    `--cluster-ca-cert=${files["cluster-ca.crt"]}`,
    `--health-port=${ports.serverHealth}`,
    "--health-bind-address=127.0.0.1",
    `--admin-port=${ports.admin}`,
    ...COMMON_FLAGS,
  ]);
  await ready(ports.serverHealth, server, children);
  timed(`server, process ${server.pid}: callers on 127.0.0.1:${ports.callers}, agents on 127.0.0.1:${ports.agents}`);

  const agent = children.start("agent", [
    "agent",
    `--server=wss://localhost:${ports.agents}`,
    "--server-address=127.0.0.1",
    `--ca-cert=${files["cluster-ca.crt"]}`,
    `--agent-cert=${files["agent.crt"]}`,
    `--agent-key=${files["agent.key"]}`,
    "--agent-id=demo-agent",
    `--health-server-port=${ports.agentHealth}`,
    "--health-server-host=127.0.0.1",
    "--admin-server-port=0",
    "--allow-loopback", // the sample target is there
    ...COMMON_FLAGS,
  ]);
  await ready(ports.agentHealth, agent, children);
  timed(`agent, process ${agent.pid}: its WebSocket tunnel to wss://localhost:${ports.agents} is open`);
  await Promise.race([target.firstLine, children.died]);
  timed(`sample HTTPS target, process ${target.pid}: https://localhost:${ports.target}/, which only the agent dials`);
  return { ports, pki, targetCa: targetFiles.ca };
}

const COMMON_FLAGS = ["--log-format=json", "--log-level=info", "--drain-timeout=2s"];

const TARGET_FILES = ["target-ca.crt", "target.crt", "target.key"] as const;

async function targetCertificate(dir: string): Promise<{ ca: string; cert: string; key: string }> {
  const authority = await Authority.create("culvert demo target CA", 30);
  const leaf = await authority.issue({ cn: "sample-target", names: ["localhost", "127.0.0.1"], usage: "server" });
  const [ca, cert, key] = TARGET_FILES.map((name) => join(dir, name)) as [string, string, string];
  const files = { ca, cert, key };
  await Promise.all([
    writeFile(files.ca, authority.cert),
    writeFile(files.cert, leaf.cert),
    writeFile(files.key, leaf.key, { mode: 0o600 }),
  ]);
  return files;
}

async function ready(port: number, child: Child, children: Children): Promise<void> {
  const deadline = performance.now() + READY_MS;
  let last = "no answer";
  while (performance.now() < deadline && !children.closing) {
    try {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`, { signal: AbortSignal.timeout(1_000) });
      if (answer.ok) return;
      last = await answer.text();
    } catch {
      // Not listening yet.
    }
    await sleep(20);
  }
  throw new Error(`the ${child.name} was not ready within ${READY_MS / 1_000} s: ${last}`);
}

function printCommands(ports: DemoPorts, { files }: Pki, targetCa: string, out: Printer): void {
  const proxy = [
    `curl -x https://127.0.0.1:${ports.callers} --proxy-cacert ${shellQuoted(files["server-ca.crt"])}`,
    `--proxy-cert ${shellQuoted(files["client.crt"])} --proxy-key ${shellQuoted(files["client.key"])}`,
  ];
  const lines = (...parts: string[]): void => out.command(`  ${parts.join(" \\\n    ")}\n`);
  out.heading("Try it yourself with curl:");
  lines(...proxy, `--cacert ${shellQuoted(targetCa)} https://localhost:${ports.target}/`);
  out.line("A target that does not listen (-i shows the message that kubectl would show):\n");
  lines(...proxy, "-i https://localhost:1/");
  out.line("A target that agents never dial by default, the metadata service of a cloud:\n");
  lines(...proxy, "-i --proxytunnel http://169.254.169.254/latest/");
  out.line("The server's status page, for a browser:\n");
  out.command(`  http://127.0.0.1:${ports.admin}/ui/\n`);
  out.line("Readiness of the server and metrics of the agent:\n");
  out.command(`  curl "http://127.0.0.1:${ports.serverHealth}/readyz?verbose"`);
  out.command(`  curl -s http://127.0.0.1:${ports.agentHealth}/metrics | grep ^culvert_\n`);
  out.line("Each connection is one line of the server's log, which follows here. Ctrl-C ends everything.\n");
}

function explain(error: unknown, out: Printer): void {
  out.failure(error instanceof Error ? error.message : String(error));
  if (!(error instanceof ChildDied)) return;
  for (const line of error.log.slice(-10)) out.line(`      ${logLine("", line).trim()}`);
}

// ── what is printed ──────────────────────────────────────────────────────────────────────────────────────────────────

const CODES = { bold: 1, dim: 2, green: 32, red: 31, yellow: 33, cyan: 36 } as const;

/** Prints the lines of a demo, with colours on a terminal only. */
function printer() {
  // https://no-color.org
  const coloured = process.stdout.isTTY === true && !process.env["NO_COLOR"];
  const styled = (style: keyof typeof CODES, text: string): string =>
    coloured ? `\x1b[${CODES[style]}m${text}\x1b[0m` : text;
  const line = (text: string): void => void process.stdout.write(`${text}\n`);
  return {
    line,
    heading: (text: string) => line(`\n${styled("bold", text)}\n`),
    step: (text: string, ms: number) =>
      line(`  ${styled("green", "✓")} ${styled("cyan", duration(ms).padStart(8))}  ${text}`),
    note: (text: string) => line(`  ${styled("yellow", "!")} ${" ".repeat(8)}  ${text}`),
    failure: (text: string) => line(`  ${styled("red", "✗")} ${text}`),
    /** A command to paste into a shell, or a line of a log. */
    command: (text: string) => line(styled("dim", text)),
  };
}

type Printer = ReturnType<typeof printer>;

/** Reports steps, each with the time since the one before, ms. */
function stopwatch(onStep: Printer["step"]): (text: string) => void {
  let before = performance.now();
  return (text) => {
    const now = performance.now();
    onStep(text, now - before);
    before = now;
  };
}

function duration(ms: number): string {
  return ms < 1_000 ? `${ms.toFixed(1)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** Formats a line of a child's JSON log: the message and the fields that describe a connection. */
function logLine(name: string, line: string): string {
  const record = line.startsWith("{") ? (jsonOf(line) as Record<string, unknown> | undefined) : undefined;
  if (record === undefined) return `${name.padEnd(6)}  ${line}`;
  const { time = "", msg = "" } = record;
  const story = readableLine({ msg, ...Object.fromEntries(KEYS.map((key) => [key, record[key]])) });
  return `${name.padEnd(6)}  ${String(time).slice(11, 23)}  ${story}`;
}

const KEYS = "caller target agent outcome code reason dialMs bytesUp bytesDown durationMs endedBy".split(" ");
