import { once } from "node:events";
import { connect as connectUnix } from "node:net";
import { type Duplex, finished, type Readable, type Writable } from "node:stream";
import type { TLSSocket } from "node:tls";
import { formatTarget, parseTarget, type Target } from "../shared/address/target.ts";
import { ConfigError } from "../shared/config/options.ts";
import { parseDuration } from "../shared/config/values.ts";
import { dialTcp } from "../shared/dial/dial-tcp.ts";
import { readBoundedSync } from "../shared/documents/read-bounded.ts";
import { printable } from "../shared/outcomes.ts";
import { type ClientTls, tlsOver } from "../shared/tls/tls-over.ts";
import { connectOverHttp1 } from "../sidecars/http-connect.ts";
import { Refusal } from "../sidecars/refusal.ts";
import { reportTo } from "./step-report.ts";

/** The options as they are typed. */
export interface ConnectOptions {
  readonly server: string;
  readonly udsName?: string;
  readonly caCert?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly connectTimeout: string;
  readonly quiet?: true;
}

/** Where the bytes come from and go to. */
export interface Standard {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
}

/** A step that could not be taken; `sentence` says why, `next` what to do. */
class StepFailed extends Error {
  readonly next: string;

  constructor(sentence: string, next: string, cause: unknown) {
    super(sentence, { cause });
    this.next = next;
  }
}

/**
 * `culvert connect`: one CONNECT as a caller makes it, each step on stderr with its time, then stdin to the target and
 * the target to stdout, each direction until it ends. Resolves with the exit code: 0, or 1 if the target was not
 * reached or the connection was lost. Throws a `ConfigError`.
 */
export async function runConnect(target: string, options: ConnectOptions, standard: Standard): Promise<number> {
  const plan = planOf(target, options);
  const { onStep, onVerdict } = reportTo((text) => options.quiet !== true && standard.stderr.write(text));
  const steps = new Steps((step, ms, detail) => onStep({ step, state: "passed", ms, detail }));
  try {
    const tunnel = await open(plan, steps);
    onVerdict({ sentence: `${plan.authority} is connected.`, next: "" });
    return await joined(tunnel, standard);
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    onStep({ step: steps.now, state: "failed", ms: steps.ms, detail: error.message });
    const next = error.next === "" ? "" : `Next: ${error.next}\n`;
    standard.stderr.write(options.quiet ? `culvert connect: ${error.message}\n` : `\n${next}`);
    return 1;
  }
}

interface Plan {
  readonly authority: string;
  readonly server: { readonly path: string } | Target;
  readonly tls: ClientTls;
  readonly withinMs: number;
}

function planOf(target: string, options: ConnectOptions): Plan {
  const { udsName, caCert, cert, key } = options;
  if ((cert === undefined) !== (key === undefined)) throw new ConfigError("--cert and --key belong together.");
  return {
    authority: formatTarget(read("The target:", () => parseTarget(target))),
    server: udsName === undefined ? read("--server:", () => parseTarget(options.server)) : { path: udsName },
    tls: { ca: contentOf("--ca-cert", caCert), cert: contentOf("--cert", cert), key: contentOf("--key", key) },
    withinMs: read("--connect-timeout", () => parseDuration(options.connectTimeout)),
  };
}

function contentOf(flag: string, path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  return read(`${flag}: ${printable(path)} cannot be read:`, () => readBoundedSync(path).toString("latin1"));
}

/** Throws a `ConfigError` that begins with `name`. */
function read<T>(name: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new ConfigError(`${name} ${(error as Error).message}.`);
  }
}

/** The current step, and its start. */
class Steps {
  readonly #onPassed: (step: string, ms: number, detail: string) => void;
  now = "";
  #since = 0;

  constructor(onPassed: (step: string, ms: number, detail: string) => void) {
    this.#onPassed = onPassed;
  }

  get ms(): number {
    return performance.now() - this.#since;
  }

  begin(step: string): void {
    this.now = step;
    this.#since = performance.now();
  }

  passed(detail: string): void {
    this.#onPassed(this.now, this.ms, detail);
  }
}

/** Rejects with a `StepFailed`. */
async function open({ authority, server, tls, withinMs }: Plan, steps: Steps): Promise<Duplex> {
  const signal = AbortSignal.timeout(withinMs);
  const at = "path" in server ? server.path : formatTarget(server);
  const way = "path" in server ? await unix(server.path, steps, signal) : await encrypted(server, tls, steps, signal);
  steps.begin("connect");
  try {
    const tunnel = await connectOverHttp1(way, { authority, at: `the server ${at}`, signal });
    steps.passed(`200: the agent has connected to ${authority}`);
    return tunnel;
  } catch (error) {
    if (!(error instanceof Refusal)) throw late(error, signal, "the server has not answered", LATE);
    const isAnswer = error.cause === undefined;
    const status = isAnswer ? `${error.status} ${error.kind}: ` : "";
    throw new StepFailed(`${status}${error.message}`, isAnswer ? explain(error.kind) : CERTIFICATE, error);
  }
}

async function unix(path: string, steps: Steps, signal: AbortSignal): Promise<Duplex> {
  steps.begin("unix socket");
  const socket = connectUnix({ path, allowHalfOpen: true });
  socket.on("error", ignore);
  try {
    await once(socket, "connect", { signal });
  } catch (error) {
    socket.destroy();
    const sentence = `${path}: ${(error as NodeJS.ErrnoException).code ?? "no answer"}`;
    throw new StepFailed(sentence, "Check that the server runs, and that you may write to its socket.", error);
  }
  steps.passed(path);
  return socket;
}

async function encrypted(server: Target, tls: ClientTls, steps: Steps, signal: AbortSignal) {
  steps.begin("tcp");
  const at = `the server ${formatTarget(server)}`;
  const raw = await dialTcp(server, at, signal).catch((error: Error) => {
    throw new StepFailed(error.message, "", error);
  });
  steps.passed(formatTarget({ host: raw.remoteAddress ?? server.host, port: server.port }));
  steps.begin("tls");
  const socket = tlsOver(raw, server.host, tls, "http/1.1");
  try {
    await once(socket, "secureConnect", { signal });
  } catch (error) {
    socket.destroy();
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === NO_TLS) throw new StepFailed(`${at} speaks no TLS`, "Check --server: is it the callers' port?", error);
    throw late(error, signal, message, "Check --ca-cert, and the names in the server's certificate.");
  }
  steps.passed(
    `${socket.getProtocol()}, the server is ${subjectOf(socket)}${tls.cert === undefined ? ", no --cert" : ""}`,
  );
  return socket;
}

/** OpenSSL's code where the first bytes are no record of TLS. */
const NO_TLS = "ERR_SSL_WRONG_VERSION_NUMBER";
const LATE = "Raise --connect-timeout, or run culvert status at the server.";
const CERTIFICATE = "Check --cert and --key: the server ends connections of callers that it does not know.";

function late(error: unknown, signal: AbortSignal, sentence: string, next: string): StepFailed {
  return new StepFailed(signal.aborted ? "no answer in time" : sentence, next, error);
}

function explain(kind: string): string {
  return `Run culvert explain ${kind}: it says what it means and what to do.`;
}

function subjectOf(socket: TLSSocket): string {
  const { subject } = socket.getPeerCertificate();
  return `CN=${printable(String([subject.CN].flat()[0] ?? ""))}`;
}

/** Resolves when the target has ended and all of it is written, or the connection is lost. */
function joined(tunnel: Duplex, { stdin, stdout, stderr }: Standard): Promise<number> {
  return new Promise((resolve) => {
    stdin.pipe(tunnel);
    tunnel.pipe(stdout, { end: false });
    finished(tunnel, { writable: false }, (error) => {
      stdin.unpipe(tunnel);
      tunnel.destroy();
      if (error) stderr.write(`culvert connect: the connection was lost: ${error.message}\n`);
      stdout.write("", () => resolve(error ? 1 : 0));
    });
    stdout.on("error", () => tunnel.destroy());
  });
}

function ignore(): void {}
