import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ConfigError } from "../../shared/config/options.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { createPki, type Pki, refuseToOverwrite } from "../pki/pki.ts";
import { exitCodeOf, shellQuoted, untilSignal } from "../terminal.ts";
import { type Child, ChildDied, Children } from "./children.ts";
import { connectOnce } from "./connect.ts";
import { logLine, type Printer, printer } from "./print.ts";
import { choosePorts, type DemoFolder, demoFolder } from "./resources.ts";

export interface DemoOptions {
  /** Certificates and socket are kept here; by default in a temporary folder that goes with the demo. */
  readonly dir?: string | undefined;
  /** End after the one CONNECT. */
  readonly once?: boolean;
}

/** Ports that a demo takes where they are free. */
export const DEMO_PORTS = {
  callers: { port: 8090, purpose: "callers" },
  agents: { port: 8091, purpose: "agents" },
  serverHealth: { port: 8092, purpose: "the server's health" },
  agentHealth: { port: 8093, purpose: "the agent's health" },
  target: { port: 8444, purpose: "the sample target" },
} as const;
type Ports = Record<keyof typeof DEMO_PORTS, number>;

const READY_MS = 30_000;
/** Linux: sun_path holds 108 bytes with its end. */
const MAX_SOCKET_PATH = 107;

/** `culvert demo`: a server, an agent and a sample target on this machine, one CONNECT shown, then curl lines to paste. */
export async function runDemo(options: DemoOptions, out: Printer = printer()): Promise<void> {
  let follow: ((line: string) => void) | undefined;
  let shown = false;
  const children = new Children((name, line) => follow?.(`  ${logLine(name, line)}`));
  let folder: DemoFolder | undefined;
  const stop = untilSignal((signal) => {
    children.kill();
    folder?.remove();
    process.exit(exitCodeOf(signal));
  });

  const show = async (): Promise<void> => {
    out.heading("culvert demo: a CONNECT from here, through a server and an agent's WebSocket tunnel, to a target");
    folder = await demoFolder(options.dir);
    const { ports, pki, targetCa } = await start(folder.path, children, out);
    out.heading("One CONNECT, as kube-apiserver makes it:");
    const { files } = pki;
    const [ca, cert, key] = await Promise.all(
      [files["server-ca.crt"], files["client.crt"], files["client.key"]].map((file) => readFile(file, "utf8")),
    );
    const proxy = { port: ports.callers, ca: ca ?? "", cert: cert ?? "", key: key ?? "" };
    const target = { host: "localhost", port: ports.target, ca: await readFile(targetCa, "utf8") };
    const lines: string[] = []; // of this CONNECT: shown below, where those of the next ones will be
    follow = (line) => lines.push(line);
    await connectOnce({ proxy, target }, out.step);
    shown = true;
    if (options.once) return;
    invite(ports, pki, targetCa, out);
    lines.forEach(out.command);
    follow = out.command;
    await Promise.race([stop.signal, children.died]);
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
      // Ctrl-C is how a demo ends; before it has shown anything it is an interruption.
      if (!shown) process.exitCode = exitCodeOf(signal);
    }
    await children.close();
    // Interrupted in the middle, it fails at its next step; until then it may still write into the folder.
    await showing.catch(() => {});
    folder?.remove();
  }
}

/** Certificates, then target, server and agent, each told when it is ready. */
async function start(
  dir: string,
  children: Children,
  out: Printer,
): Promise<{ ports: Ports; pki: Pki; targetCa: string }> {
  const timed = stopwatch(out);
  await refuseToOverwrite(dir, TARGET_FILES);
  const pki = await createPki({ dir, days: 30 });
  const targetFiles = await targetCertificate(dir);
  timed(`throwaway certificates (two CAs, and one for the target) in ${dir}`);

  const chosen = await choosePorts(DEMO_PORTS);
  for (const { port, purpose, insteadOf } of Object.values(chosen)) {
    if (insteadOf !== undefined) out.note(`port ${insteadOf} is taken: ${purpose} will be on ${port}`);
  }
  const ports = Object.fromEntries(Object.entries(chosen).map(([name, { port }]) => [name, port])) as Ports;

  const { files } = pki;
  const target = children.start("target", "target", [String(ports.target), targetFiles.cert, targetFiles.key]);
  const socket = join(dir, "culvert.sock");
  const server = children.start("server", "../main", [
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
    "--admin-port=0",
    ...COMMON_FLAGS,
  ]);
  await ready(ports.serverHealth, server, children);
  timed(`server, process ${server.pid}: callers on 127.0.0.1:${ports.callers}, agents on 127.0.0.1:${ports.agents}`);

  const agent = children.start("agent", "../main", [
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
    "--allow-loopback", // where the sample target is
    ...COMMON_FLAGS,
  ]);
  await ready(ports.agentHealth, agent, children);
  timed(`agent, process ${agent.pid}: its WebSocket tunnel to wss://localhost:${ports.agents} stands`);
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

function invite(ports: Ports, { files }: Pki, targetCa: string, out: Printer): void {
  const proxy = [
    `curl -x https://127.0.0.1:${ports.callers} --proxy-cacert ${shellQuoted(files["server-ca.crt"])}`,
    `--proxy-cert ${shellQuoted(files["client.crt"])} --proxy-key ${shellQuoted(files["client.key"])}`,
  ];
  const lines = (...parts: string[]): void => out.command(`  ${parts.join(" \\\n    ")}\n`);
  out.heading("Your turn. The same with curl:");
  lines(...proxy, `--cacert ${shellQuoted(targetCa)} https://localhost:${ports.target}/`);
  out.line("A target where nobody listens (-i shows the sentence that kubectl would show):\n");
  lines(...proxy, "-i https://localhost:1/");
  out.line("A target that the agent does not dial for anybody, the credentials of a cloud machine:\n");
  lines(...proxy, "-i --proxytunnel http://169.254.169.254/latest/");
  out.line("What server and agent say about themselves:\n");
  out.command(`  curl "http://127.0.0.1:${ports.serverHealth}/readyz?verbose"`);
  out.command(`  curl -s http://127.0.0.1:${ports.agentHealth}/metrics | grep ^culvert_\n`);
  out.line("Each connection is one line of the server's log, below. Ctrl-C ends everything.\n");
}

function explain(error: unknown, out: Printer): void {
  out.failure(error instanceof Error ? error.message : String(error));
  if (!(error instanceof ChildDied)) return;
  for (const line of error.log.slice(-10)) out.line(`      ${logLine("", line).trim()}`);
}

function stopwatch(out: Printer): (text: string) => void {
  let before = performance.now();
  return (text) => {
    const now = performance.now();
    out.step(text, now - before);
    before = now;
  };
}
