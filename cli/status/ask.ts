import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import * as z from "zod";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { jsonOf, seconds } from "../../shared/basics/text.ts";
import { connectTcp } from "../../shared/net/connect-tcp.ts";

const WITHIN_MS = 5_000;

/** The advice for a process that accepts a connection and does not answer. */
const NO_ANSWER =
  "is that the admin port of a server, agent or router? If it is, the process hangs, or has no file descriptors left (its log says so; raise its limit by ulimit -n or LimitNOFILE=)";

/** RFC 9110 §15.5.20. */
const MISDIRECTED = 421;
const OTHER_NAME =
  "does not take this name for its own (HTTP 421): ask it by an IP address or localhost, or start it with the name in --admin-allowed-hosts";

/** There is no status to show. The message is a sentence for the user. */
export class NoStatus extends Error {}

/** The kind of process. Older servers do not send it. */
type StatusKind = "server" | "agent" | "router";

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

interface AdminRequest {
  readonly path: string;
  /** If given, it is posted as JSON. */
  readonly body?: object;
  readonly withinMs: number;
  /** Cancels the request. */
  readonly stop?: AbortSignal;
}

interface AdminAnswer {
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
  const socket = await connectTcp({ host, port }, signal);
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const over = { createConnection: () => socket };
    const asking = httpRequest({ host, port, path, method, headers, signal, ...over }, resolve);
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
    return "refuses the connection: does the process run, with this as its --admin-bind-address and --admin-port (an agent's: --admin-server-port)?";
  }
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "is a name that cannot be resolved";
  // A server without file descriptors closes new connections. Its TLS ports do so too when they get plain HTTP.
  if (code === "ECONNRESET") return `closes the connection without an answer: ${NO_ANSWER}`;
  if (code.startsWith("HPE_")) {
    return "does not speak plain HTTP, as a server's --admin-port does: is that another port?";
  }
  return `cannot be asked: ${message}`;
}

// ── what an answer holds ─────────────────────────────────────────────────────────────────────────────────────────────

const refusal = z.object({
  side: z.string(),
  code: z.string(),
  from: z.string(),
  target: z.string().optional(),
  reason: z.string(),
  at: z.iso.datetime(),
  times: z.number(),
});

/** Of a link; null: not known yet. Older servers and agents do not send it. */
const pace = z
  .object({
    roundMs: z.number().nullable(),
    sentPerSecond: z.number().nullable(),
    receivedPerSecond: z.number().nullable(),
  })
  .optional();
export type PaceStatus = z.infer<typeof pace>;

const tunnel = z.object({
  agent: z.string(),
  identity: z.string(),
  remote: z.string(),
  /** Older servers have culvert's own agents alone. */
  protocol: z.string().default("culvert"),
  /** The agent takes no packets, because one of its targets does not. */
  standsStill: z.boolean().default(false),
  connectedAt: z.iso.datetime(),
  /** True for a tunnel of `culvert doctor`, which only measures. Older servers do not send it. */
  probe: z.boolean().default(false),
  draining: z.boolean(),
  suspended: z.boolean(),
  streams: z.number(),
  /** Measured for this answer; null: the agent did not answer in time. */
  roundTripMs: z.number().nullable(),
  pace,
});

const cluster = z.object({
  cluster: z.string(),
  suspended: z.boolean(),
  /** CONNECTs without an answer yet. Older servers do not send it, nor the other fields with a default. */
  pendingConnects: z.number().default(0),
  /** CONNECTs and connections that have ended. */
  connects: z.object({
    total: z.number(),
    perSecond: z.number(),
    outcomes: z.record(z.string(), z.number()),
  }),
  bytes: z.object({ carried: z.number(), perSecond: z.number() }),
  limits: z.object({
    set: z.record(z.string(), z.number()).default({}),
    hit: z.record(z.string(), z.number()),
  }),
  refusals: z.array(refusal),
  tunnels: z.array(tunnel),
});

/** The fields of a server's `/status` that the table shows. */
const status = z.object({
  serverId: z.string(),
  /** Drawn at the start of the server: two answers with one are of one server. Older servers do not send it. */
  instance: z.string().optional(),
  /** Addresses by the names of listeners: `peers` where there is a directory. */
  listeners: z.record(z.string(), z.string()).default({}),
  /** How many servers there are, as far as this one knows. Older servers do not send it. */
  servers: z.number().nullable().default(null),
  draining: z.boolean(),
  memory: z.object({ heldBytes: z.number(), limitBytes: z.number() }),
  problems: z.array(z.string()),
  refusals: z.array(refusal),
  clusters: z.array(cluster),
});

export type Status = z.infer<typeof status>;
export type ClusterStatus = z.infer<typeof cluster>;
export type TunnelStatus = z.infer<typeof tunnel>;
export type RefusalStatus = z.infer<typeof refusal>;

const uplink = z.object({
  server: z.string(),
  state: z.string(),
  /** When it was connected; absent: it is not connected. */
  since: z.iso.datetime().optional(),
  /** Why the last attempt failed, or the connection was lost; absent once there is a connection. */
  failure: z.string().optional(),
  sessions: z.array(
    z.object({
      serverId: z.string(),
      remote: z.string(),
      streams: z.number(),
      roundTripMs: z.number(),
      pace,
      draining: z.boolean(),
    }),
  ),
});

/** The fields of an agent's `/status` that the table shows. */
const agentStatus = z.object({
  agentId: z.string(),
  pendingDials: z.number(),
  memory: z.object({ heldBytes: z.number(), limitBytes: z.number() }),
  uplinks: z.array(uplink),
});

/** The fields of a router's `/status` that the table shows. */
const routerStatus = z.object({
  draining: z.boolean(),
  connections: z.number(),
  faults: z.array(z.string()),
  routes: z.array(
    z.object({ route: z.string(), sni: z.array(z.string()), backends: z.number(), sendProxy: z.string() }),
  ),
  backends: z.array(z.object({ backend: z.string(), state: z.string(), connections: z.number() })),
});

export type AgentStatus = z.infer<typeof agentStatus>;
export type RouterStatus = z.infer<typeof routerStatus>;

export const readStatus = (raw: unknown): Status => read(status, raw, "server");
export const readAgentStatus = (raw: unknown): AgentStatus => read(agentStatus, raw, "agent");
export const readRouterStatus = (raw: unknown): RouterStatus => read(routerStatus, raw, "router");

/** A process of another version may have other fields. */
function read<T>(schema: z.ZodType<T>, raw: unknown, kind: StatusKind): T {
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  const path = result.error.issues[0]?.path.join(".") ?? "";
  throw new NoStatus(`the ${kind} has another version, and its status has no valid ${path}: try --json`);
}
