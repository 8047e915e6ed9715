import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { seconds } from "../shared/net/seconds.ts";
import { formatTarget, type Target } from "../shared/net/target.ts";
import { NoStatus } from "./status-answer.ts";

const WITHIN_MS = 5_000;

/** Of whoever takes a connection and says nothing. */
const NO_WORD =
  "is that another port than a server's --admin-port? If not, the server hangs, or has no file descriptors left (its log says so; raise its limit by ulimit -n or LimitNOFILE=)";

/** RFC 9110 §15.5.20. */
const MISDIRECTED = 421;
const OTHER_NAME =
  "does not take this name for its own (HTTP 421): ask it by an IP address or localhost, or start it with the name in --admin-allowed-hosts";

/** What the culvert server behind an admin port says of itself. Rejects with `NoStatus`. */
export async function askStatus(address: Target, withinMs = WITHIN_MS): Promise<object> {
  const { status, body } = await askAdmin(address, { path: "/status", withinMs });
  const said = status === 200 ? parsed(body) : undefined;
  if (said !== undefined && "serverId" in said && "clusters" in said) return said;
  throw new NoStatus(`${formatTarget(address)} ${whoElse(said, status)}`);
}

export interface AdminQuestion {
  readonly path: string;
  /** Posted as JSON, if there is something. */
  readonly body?: object;
  readonly withinMs: number;
}

export interface AdminAnswer {
  readonly status: number;
  readonly body: string;
}

/** One request to an admin port. Rejects with `NoStatus`. */
export async function askAdmin(address: Target, question: AdminQuestion): Promise<AdminAnswer> {
  const { withinMs } = question;
  const signal = AbortSignal.timeout(withinMs);
  let answer: AdminAnswer;
  try {
    answer = await request(address, question, signal);
  } catch (error) {
    const why = signal.aborted ? `did not answer within ${seconds(withinMs)}: ${NO_WORD}` : whyNoAnswer(error);
    throw new NoStatus(`${formatTarget(address)} ${why}`, { cause: error });
  }
  if (answer.status === MISDIRECTED) throw new NoStatus(`${formatTarget(address)} ${OTHER_NAME}`);
  return answer;
}

async function request(
  { host, port }: Target,
  { path, body }: AdminQuestion,
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

function parsed(body: string): object | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function whyNoAnswer(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  if (code === "ECONNREFUSED") {
    return "refuses the connection: does the server run, with this as its --admin-bind-address and --admin-port?";
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "is a name that cannot be resolved";
  // A server without descriptors cuts whoever comes; so do its ports with TLS, to which plain HTTP is nothing.
  if (code === "ECONNRESET") return `closes the connection without an answer: ${NO_WORD}`;
  if (code.startsWith("HPE_")) {
    return "does not speak plain HTTP, as a server's --admin-port does: is that another port?";
  }
  return `cannot be asked: ${message}`;
}

function whoElse(said: object | undefined, status: number): string {
  const of = said === undefined ? undefined : "agentId" in said ? "agent" : "routes" in said ? "router" : undefined;
  if (of !== undefined) return `is the admin port of a culvert ${of}: ask a server's (--admin-port, 8095)`;
  return `answers, but not as a culvert server's --admin-port does (HTTP ${status} for /status)`;
}
