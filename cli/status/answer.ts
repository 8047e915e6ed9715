import * as z from "zod";

const refusal = z.object({
  side: z.string(),
  code: z.string(),
  from: z.string(),
  target: z.string().optional(),
  reason: z.string(),
  at: z.iso.datetime(),
  times: z.number(),
});

const tunnel = z.object({
  agent: z.string(),
  identity: z.string(),
  remote: z.string(),
  connectedAt: z.iso.datetime(),
  /** True for a tunnel of `culvert doctor`, which only measures. Older servers do not send it. */
  probe: z.boolean().default(false),
  draining: z.boolean(),
  suspended: z.boolean(),
  streams: z.number(),
  /** Measured for this answer; null: the agent did not answer in time. */
  roundTripMs: z.number().nullable(),
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
    outcomes: z.record(z.string(), z.number()).optional(),
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
  sessions: z.array(
    z.object({
      serverId: z.string(),
      remote: z.string(),
      streams: z.number(),
      roundTripMs: z.number(),
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

/** There is no status to show. The message is a sentence for the user. */
export class NoStatus extends Error {}

/** The kind of process. Older servers do not send it. */
export type StatusKind = "server" | "agent" | "router";

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
