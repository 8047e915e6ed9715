import * as z from "zod";
import { formatTarget, parseTarget, type Target } from "../address/target.ts";
import { jsonOf } from "../basics/text.ts";
import { CulvertError, isOutcomeCode, type OutcomeCode, outcome, printable } from "../outcomes.ts";
import {
  encodeHead,
  MAX_HEAD_BYTES,
  milliseconds,
  type OpenedTarget,
  opened,
  openedSchema,
  traceparent,
  wholeMs,
} from "./stream-head.ts";

/**
 * The head of a stream of kind `peer`, by which a server asks another one for a target of a cluster whose agents are
 * connected there (docs/fleet.md).
 *
 * ```
 *  server ── SYN, head {"kind":"peer","hops":1,"cluster":"blue","target":"…","timeoutMs":5000,"id":"…"} ──▶ peer
 *         ◀── ACK (before it asks an agent) ──
 *         ◀── head {"ok":true,"agent":"…"}  or  {"error":"dial_refused","detail":"…"} ──
 * ```
 */
export interface PeerOpenRequest {
  readonly cluster: string;
  readonly target: Target;
  /** How long the caller still waits for an answer. */
  readonly timeoutMs: number;
  /** The name of the CONNECT, for the logs of both servers and of the agent. */
  readonly id: string;
  /** Only agents that claim the target may be asked: identifiers are strict where the caller came in. */
  readonly onlyClaimed?: true;
  /** The answer is to say how long the agent's steps took. */
  readonly timed?: true;
  /** As `OpenRequest.traceparent`. */
  readonly traceparent?: string | undefined;
}

/** The peer's answer, after that of its agent. */
export type PeerAnswer =
  | (OpenedTarget & { readonly agent: string })
  | { readonly ok: false; readonly error: CulvertError };

const PEER_KIND = "peer";

/** A CONNECT, and an agent's connection, pass one other server at most. */
const MAX_HOPS = 1;
const MAX_TIMEOUT_MS = 300_000;
/** Sentences come back as they were, so there is more room than for an agent's. */
const MAX_SENTENCE_BYTES = 1_000;

const kindSchema = z.object({ kind: z.string().max(32) });

/** The fields of each request of another server. */
const hopFields = { hops: z.number().int().min(1), cluster: z.string().min(1).max(63) };

const requestSchema = z.object({
  ...hopFields,
  kind: z.literal(PEER_KIND),
  target: z.string().max(300),
  timeoutMs: z.number().positive(),
  id: z.string().min(1).max(256),
  onlyClaimed: z.boolean().optional(),
  timed: z.boolean().optional(),
  traceparent,
});

const answerSchema = z.union([
  openedSchema.extend({ agent: z.string().max(253) }),
  z.object({
    error: z.string().max(64),
    detail: z.string().max(MAX_HEAD_BYTES).optional(),
    retryAfterMs: milliseconds.optional(),
    acknowledged: z.boolean().optional(),
    byAgent: z.boolean().optional(),
  }),
]);

/** The kind of a stream that another server, or an agent, has opened; `undefined`: its head is malformed. */
export function streamKind(json: Buffer): string | undefined {
  return kindSchema.safeParse(jsonOf(json)).data?.kind;
}

/** The head of a CONNECT that goes to another server. */
export function encodePeerOpen(request: PeerOpenRequest): Buffer {
  const target = formatTarget(request.target);
  return encodeHead({ ...request, kind: PEER_KIND, hops: MAX_HOPS, target, timeoutMs: wholeMs(request.timeoutMs) });
}

/** Parses a request of another server; throws a `CulvertError` that can be the answer. */
export function parsePeerOpen(json: Buffer): PeerOpenRequest {
  const kind = streamKind(json) ?? PEER_KIND;
  if (kind !== PEER_KIND) {
    throw new CulvertError("forbidden", `streams of kind "${printable(kind, 32)}" are not taken here`);
  }
  const request = requestSchema.safeParse(jsonOf(json));
  if (!request.success) throw new CulvertError("internal", "the other server's request is malformed");
  const { hops, cluster, target, timeoutMs, id, onlyClaimed, timed, traceparent } = request.data;
  if (hops > MAX_HOPS) throw new CulvertError("forbidden", `a CONNECT passes one other server at most, not ${hops}`);
  return {
    cluster: printable(cluster),
    target: parseTarget(target),
    timeoutMs: Math.min(timeoutMs, MAX_TIMEOUT_MS),
    id: printable(id, 256),
    ...(onlyClaimed === true && { onlyClaimed }),
    ...(timed === true && { timed }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

export function encodePeerAnswer(answer: PeerAnswer): Buffer {
  if (answer.ok) return encodeHead(answer);
  const { code, message, retryAfterMs, acknowledged, refusedBy } = answer.error;
  return encodeHead({
    error: code,
    detail: printable(message, MAX_SENTENCE_BYTES),
    retryAfterMs,
    acknowledged: acknowledged || undefined,
    byAgent: refusedBy === "agent" || undefined,
  });
}

/** Parses another server's answer: its code and sentence stay as they are. Throws `CulvertError` `internal`. */
export function parsePeerAnswer(json: Buffer): PeerAnswer {
  const answer = answerSchema.safeParse(jsonOf(json));
  if (!answer.success) throw new CulvertError("internal", "the other server's answer is malformed");
  if ("ok" in answer.data) return { ...opened(answer.data), agent: printable(answer.data.agent) };
  const { error, detail = "", retryAfterMs, acknowledged = false, byAgent = false } = answer.data;
  const code: OutcomeCode = isOutcomeCode(error) && outcome(error).http !== undefined ? error : "internal";
  const sentence = printable(detail, MAX_SENTENCE_BYTES) || `the other server answered ${printable(error, 64)}`;
  return {
    ok: false,
    error: new CulvertError(code, sentence, {
      acknowledged,
      ...(retryAfterMs !== undefined && { retryAfterMs }),
      ...(byAgent && { refusedBy: "agent" }),
    }),
  };
}

// ── an agent's connection to the server that has its link ──────────────────────────────────────────────────────────

/**
 * The head of a stream of kind `carrier`, by which a server carries the connection of an agent to the server that has
 * its link (docs/link-protocol.md).
 *
 * ```
 *  server ── SYN, head {"kind":"carrier","hops":1,"cluster":"blue","address":"…","port":1,"chain":[912]} ──▶ owner
 *         ◀── head {"ok":true,"agent":""}  or  {"error":"draining","detail":"…"} ──
 *         ── the certificates (DER), one after the other; the agent's upgrade, and what follows it ──▶
 * ```
 */
export interface CarrierRequest {
  readonly cluster: string;
  /** Where the agent's connection comes from. */
  readonly address: string;
  readonly port: number;
  /** Lengths of the agent's certificate and of the intermediate ones, bytes. */
  readonly chain: readonly number[];
}

export const CARRIER_KIND = "carrier";

const carrierSchema = z.object({
  ...hopFields,
  kind: z.literal(CARRIER_KIND),
  address: z.string().min(1).max(64),
  port: z.number().int().min(0).max(65_535),
  chain: z.array(z.number().int().min(1).max(65_535)).max(64),
});

export function encodeCarrier({ cluster, address, port, chain }: CarrierRequest): Buffer {
  return encodeHead({ kind: CARRIER_KIND, hops: MAX_HOPS, cluster, address, port, chain });
}

/** Parses a request of another server; throws a `CulvertError` that can be the answer. */
export function parseCarrier(json: Buffer): CarrierRequest {
  const request = carrierSchema.safeParse(jsonOf(json));
  if (!request.success) throw new CulvertError("internal", "the other server's request is malformed");
  const { hops, cluster, address, port, chain } = request.data;
  if (hops > MAX_HOPS)
    throw new CulvertError("forbidden", `a connection is carried to one other server, not by ${hops}`);
  return { cluster, address, port, chain };
}
