import type { Duplex } from "node:stream";
import { z } from "zod";
import { CulvertError, isOutcomeCode, type OutcomeCode, printable } from "../outcomes.ts";
import { encodeHead, parseJson, receiveHead } from "./stream-head.ts";

/**
 * The head of a stream of kind `probe`: an agent measures the way to its server (design: "Stream head").
 *
 * ```
 *  agent ── SYN, head {"kind":"probe","mode":"echo"} ──▶ server
 *        ◀── head {"ok":true,"time":1790000000000}  or  {"error":"limited","detail":"…","retryAfterMs":3000} ──
 * ```
 * Then `echo`: what comes goes back. `source`: bytes come, until the agent resets the stream. `sink`: bytes are swallowed.
 */
export const PROBE_MODES = ["echo", "source", "sink"] as const;
export type ProbeMode = (typeof PROBE_MODES)[number];

/** A probe that the server takes. */
export interface ProbeBegun {
  /** The server's clock, ms since 1970; a server may leave it out. */
  readonly time: number | undefined;
}

/** From its head to its last byte, ms: what bounds the bytes of a probe. */
export const MAX_PROBE_MS = 10_000;

const requestSchema = z.object({ kind: z.string(), mode: z.string().max(32).optional() });
const answerSchema = z.union([
  z.object({ ok: z.literal(true), time: z.number().int().min(0).max(8.64e15).optional() }),
  z.object({
    error: z.string().max(64),
    detail: z.string().max(512).optional(),
    retryAfterMs: z.number().min(0).max(3_600_000).optional(),
  }),
]);

/** The bytes that go with the SYN. */
export function encodeProbe(mode: ProbeMode): Buffer {
  return encodeHead({ kind: "probe", mode });
}

/** The mode in a head's JSON. Throws `CulvertError`, fit for an answer: agents open probes, and nothing else. */
export function parseProbe(json: Buffer): ProbeMode {
  const request = requestSchema.safeParse(parseJson(json));
  if (!request.success || request.data.kind !== "probe") {
    throw new CulvertError("forbidden", "agents open streams of kind probe only");
  }
  const { mode } = request.data;
  const known = PROBE_MODES.find((name) => name === mode);
  if (known !== undefined) return known;
  throw new CulvertError(
    "forbidden",
    `a probe is one of ${PROBE_MODES.join(", ")}, not "${printable(mode ?? "", 32)}"`,
  );
}

export function encodeProbeBegun(time: number): Buffer {
  return encodeHead({ ok: true, time });
}

export function encodeProbeRefusal({ code, message, retryAfterMs }: CulvertError): Buffer {
  return encodeHead({ error: code, detail: printable(message), ...(retryAfterMs !== undefined && { retryAfterMs }) });
}

/** The server's answer. Rejects with a `CulvertError` when it is a no, or the stream ends without one. */
export async function readProbeAnswer(stream: Duplex): Promise<ProbeBegun> {
  const head = new Promise<Buffer>((resolve, reject) => receiveHead(stream, resolve, reject));
  const answer = answerSchema.safeParse(parseJson(await head));
  if (!answer.success) throw new CulvertError("internal", "the server's answer to a probe is malformed");
  if ("ok" in answer.data) return { time: answer.data.time };
  const { error, detail = "", retryAfterMs } = answer.data;
  const code: OutcomeCode = isOutcomeCode(error) ? error : "internal";
  const sentence = printable(detail) || `the server refused the probe (${printable(error, 64)})`;
  throw new CulvertError(code, sentence, retryAfterMs === undefined ? {} : { retryAfterMs });
}
