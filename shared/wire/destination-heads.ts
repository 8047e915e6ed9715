import * as z from "zod";
import { formatTarget, parseTarget, type Target } from "../address/target.ts";
import { jsonOf } from "../basics/text.ts";
import { CulvertError, printable } from "../outcomes.ts";
import { encodePeerAnswer, parsePeerAnswer } from "./peer-heads.ts";
import { encodeHead, wholeMs } from "./stream-head.ts";

/**
 * The head of a stream of kind `destination`, by which an agent asks its server for a destination of the control plane
 * (docs/node-to-control-plane.md).
 *
 * ```
 *  agent ── SYN, head {"kind":"destination","target":"10.0.0.1:6443","timeoutMs":5000,"id":"…"} ──▶ server
 *        ◀── ACK (before it resolves and dials) ──
 *        ◀── head {"ok":true,"agent":""}  or  {"error":"forbidden","detail":"…"} ──
 * ```
 */
export interface DestinationRequest {
  readonly target: Target;
  /** How long the agent still waits for an answer. */
  readonly timeoutMs: number;
  /** The agent's name for the connection, for the logs of both ends. */
  readonly id: string;
}

export const DESTINATION_KIND = "destination";

const MAX_TIMEOUT_MS = 300_000;
/** An agent id may have 128 characters, and a number follows. */
const MAX_ID = 160;

const requestSchema = z.object({
  kind: z.literal(DESTINATION_KIND),
  target: z.string().max(300),
  timeoutMs: z.number().positive(),
  id: z.string().max(MAX_ID),
});

export function encodeDestination({ target, timeoutMs, id }: DestinationRequest): Buffer {
  return encodeHead({ kind: DESTINATION_KIND, target: formatTarget(target), timeoutMs: wholeMs(timeoutMs), id });
}

/** Parses a request of an agent; throws a `CulvertError` that can be the answer. */
export function parseDestination(json: Buffer): DestinationRequest {
  const request = requestSchema.safeParse(jsonOf(json));
  if (!request.success) throw new CulvertError("internal", "the agent's request for a destination is malformed");
  const { target, timeoutMs, id } = request.data;
  return { target: parseTarget(target), timeoutMs: Math.min(timeoutMs, MAX_TIMEOUT_MS), id: printable(id, MAX_ID) };
}

/** The server's answer, which has the form of an answer between servers: its code and sentence arrive as they are. */
export function encodeDestinationAnswer(error?: CulvertError): Buffer {
  return encodePeerAnswer(error === undefined ? { ok: true, agent: "" } : { ok: false, error });
}

/** Parses the server's answer; throws the `CulvertError` in it. */
export function requireDestinationAnswer(json: Buffer): void {
  const answer = parsePeerAnswer(json);
  if (!answer.ok) throw answer.error;
}
