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

/** There is no status to show; the message is a sentence for whoever asked. */
export class NoStatus extends Error {}

/** A server of another version may say other things. */
export function readStatus(raw: unknown): Status {
  const result = status.safeParse(raw);
  if (result.success) return result.data;
  const path = result.error.issues[0]?.path.join(".") ?? "";
  throw new NoStatus(`the server is of another version and does not say ${path} as this one would: try --json`);
}
