import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { jsonOf, seconds } from "../../shared/basics/text.ts";
import { NoStatus, type StatusKind } from "./answer.ts";

const WITHIN_MS = 5_000;

/** What to check when a process accepts a connection and does not answer. */
const NO_ANSWER =
  "is that another port than a server's --admin-port? If not, the server hangs, or has no file descriptors left (its log says so; raise its limit by ulimit -n or LimitNOFILE=)";

/** RFC 9110 §15.5.20. */
const MISDIRECTED = 421;
const OTHER_NAME =
  "does not take this name for its own (HTTP 421): ask it by an IP address or localhost, or start it with the name in --admin-allowed-hosts";

/** The status of a process. */
export interface StatusReport {
  readonly kind: StatusKind;
  /** The whole answer to `/status`. */
  readonly all: object;
}

/** Asks an admin port for the status of its process. Rejects with `NoStatus`, at the latest when `stop` aborts. */
export async function askStatus(address: Target, withinMs = WITHIN_MS, stop?: AbortSignal): Promise<StatusReport> {
  const { status, body } = await askAdmin(address, { path: "/status", withinMs, ...(stop && { stop }) });
  const all = status === 200 ? objectIn(body) : undefined;
  const kind = all === undefined ? undefined : kindOf(all);
  if (all !== undefined && kind !== undefined) return { kind, all };
  const said = `answers, but not as an --admin-port of culvert does (HTTP ${status} for /status)`;
  throw new NoStatus(`${formatTarget(address)} ${said}`);
}

function kindOf(all: object): StatusKind | undefined {
  const kind = "kind" in all ? all.kind : "server";
  if (kind === "agent" || kind === "router") return kind;
  return kind === "server" && "serverId" in all && "clusters" in all ? kind : undefined;
}

export interface AdminRequest {
  readonly path: string;
  /** If given, it is posted as JSON. */
  readonly body?: object;
  readonly withinMs: number;
  /** Cancels the request. */
  readonly stop?: AbortSignal;
}

export interface AdminAnswer {
  readonly status: number;
  readonly body: string;
}

/** Sends one request to an admin port. Rejects with `NoStatus`. */
export async function askAdmin(address: Target, question: AdminRequest): Promise<AdminAnswer> {
  const { withinMs, stop } = question;
  const late = AbortSignal.timeout(withinMs);
  const signal = stop === undefined ? late : AbortSignal.any([late, stop]);
  let answer: AdminAnswer;
  try {
    answer = await request(address, question, signal);
  } catch (error) {
    const why = late.aborted ? `did not answer within ${seconds(withinMs)}: ${NO_ANSWER}` : whyNoAnswer(error);
    throw new NoStatus(`${formatTarget(address)} ${why}`, { cause: error });
  }
  if (answer.status === MISDIRECTED) throw new NoStatus(`${formatTarget(address)} ${OTHER_NAME}`);
  return answer;
}

async function request(
  { host, port }: Target,
  { path, body }: AdminRequest,
  signal: AbortSignal,
): Promise<AdminAnswer> {
  const method = body === undefined ? "GET" : "POST";
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asking = httpRequest({ host, port, path, method, headers, agent: false, signal }, resolve);
    asking.on("error", reject);
    asking.end(body && JSON.stringify(body));
  });
  return { status: response.statusCode ?? 0, body: await text(response) };
}

function objectIn(body: string): object | undefined {
  const value = jsonOf(body);
  return typeof value === "object" && value !== null ? value : undefined;
}

function whyNoAnswer(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  if (code === "ECONNREFUSED") {
    return "refuses the connection: does the server run, with this as its --admin-bind-address and --admin-port?";
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "is a name that cannot be resolved";
  // A server without file descriptors closes new connections. Its TLS ports do so too when they get plain HTTP.
  if (code === "ECONNRESET") return `closes the connection without an answer: ${NO_ANSWER}`;
  if (code.startsWith("HPE_")) {
    return "does not speak plain HTTP, as a server's --admin-port does: is that another port?";
  }
  return `cannot be asked: ${message}`;
}
