import { type ClientRequest, get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { seconds } from "../shared/net/seconds.ts";
import { formatTarget, type Target } from "../shared/net/target.ts";
import { NoStatus } from "./status-answer.ts";

const WITHIN_MS = 5_000;

/** What the culvert server behind an admin port says of itself. Rejects with `NoStatus`. */
export async function askStatus(address: Target, withinMs = WITHIN_MS): Promise<object> {
  const where = formatTarget(address);
  const signal = AbortSignal.timeout(withinMs);
  let answer: Answer;
  try {
    answer = await getStatus(address, signal);
  } catch (error) {
    const why = signal.aborted ? `did not answer within ${seconds(withinMs)}` : whyNoAnswer(error);
    throw new NoStatus(`${where} ${why}`, { cause: error });
  }
  const said = answer.status === 200 ? parsed(answer.body) : undefined;
  if (said !== undefined && "serverId" in said && "clusters" in said) return said;
  throw new NoStatus(`${where} ${whoElse(said, answer.status)}`);
}

interface Answer {
  readonly status: number;
  readonly body: string;
}

async function getStatus({ host, port }: Target, signal: AbortSignal): Promise<Answer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const request: ClientRequest = get({ host, port, path: "/status", agent: false, signal }, resolve);
    request.on("error", reject);
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
  if (code === "ECONNRESET" || code.startsWith("HPE_")) {
    return "does not speak plain HTTP, as a server's --admin-port does: is that another port?";
  }
  return `cannot be asked: ${message}`;
}

function whoElse(said: object | undefined, status: number): string {
  const of = said === undefined ? undefined : "agentId" in said ? "agent" : "routes" in said ? "router" : undefined;
  if (of !== undefined) return `is the admin port of a culvert ${of}: ask a server's (--admin-port, 8095)`;
  return `answers, but not as a culvert server's --admin-port does (HTTP ${status} for /status)`;
}
