import { z } from "zod";

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
  /** It only measures (`culvert doctor`), and serves nobody. Left out by servers of before. */
  probe: z.boolean().default(false),
  draining: z.boolean(),
  suspended: z.boolean(),
  streams: z.number(),
  /** Measured for this answer; null: nothing came back in time. */
  roundTripMs: z.number().nullable(),
});

const cluster = z.object({
  cluster: z.string(),
  suspended: z.boolean(),
  /** CONNECTs that wait for their answer. Left out by servers of before, as what stands empty below. */
  pendingConnects: z.number().default(0),
  /** Of those that are over. */
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

/** What the table shows of a server's `/status`; it may say more. */
const status = z.object({
  serverId: z.string(),
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
  /** Since when it is connected; absent: it is not. */
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

/** What is shown of an agent's `/status`. */
const agentStatus = z.object({
  agentId: z.string(),
  pendingDials: z.number(),
  memory: z.object({ heldBytes: z.number(), limitBytes: z.number() }),
  uplinks: z.array(uplink),
});

/** What is shown of a router's. */
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

/** There is no status to show; the message is a sentence for whoever asked. */
export class NoStatus extends Error {}

/** Which process says so; a server of before says no kind. */
export type StatusKind = "server" | "agent" | "router";

export const readStatus = (raw: unknown): Status => read(status, raw, "server");
export const readAgentStatus = (raw: unknown): AgentStatus => read(agentStatus, raw, "agent");
export const readRouterStatus = (raw: unknown): RouterStatus => read(routerStatus, raw, "router");

/** One of another version may say other things. */
function read<T>(schema: z.ZodType<T>, raw: unknown, kind: StatusKind): T {
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  const path = result.error.issues[0]?.path.join(".") ?? "";
  throw new NoStatus(`the ${kind} is of another version and does not say ${path} as this one would: try --json`);
}
