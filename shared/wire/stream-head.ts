import type { Duplex } from "node:stream";
import * as z from "zod";
import { formatTarget, parseTarget, type Target } from "../address/target.ts";
import { jsonOf } from "../basics/text.ts";
import { CulvertError, isOutcomeCode, type OutcomeCode, outcome, printable } from "../outcomes.ts";

/**
 * The head of a stream: the first message each way (docs/architecture.md).
 *
 * ```
 *  server ── SYN, head {"kind":"connect","target":"10.0.0.1:10250","timeoutMs":5000,"id":"…"} ──▶ agent
 *         ◀── ACK (before it resolves and dials) ──
 *         ◀── head {"ok":true,"address":"10.0.0.1:10250"}  or  {"error":"dial_refused","detail":"…"} ──
 * ```
 * On the wire a head is a uint16 length and that many bytes of JSON. Later bytes belong to caller and target.
 */
export interface OpenRequest {
  readonly kind: "connect";
  readonly target: Target;
  /** How long the dial may take. */
  readonly timeoutMs: number;
  /** The server's name for this connection, for the logs of both ends. */
  readonly id: string;
  /** The answer is to say how long the agent's steps took. */
  readonly timed?: true;
  /** The span of the CONNECT (W3C Trace Context §3.2), if it is kept. */
  readonly traceparent?: string | undefined;
}

/** How long the agent's steps to the target took, ms. A literal address needs no name server. */
export interface OpenTimes {
  readonly dnsMs: number;
  /** Of `TargetPolicy`, for all addresses; an older agent does not say. */
  readonly policyMs?: number | undefined;
  readonly dialMs: number;
}

/** The answer of an agent that has dialled. */
export interface OpenedTarget {
  readonly ok: true;
  readonly address?: string;
  readonly times?: OpenTimes;
  readonly traced?: true | undefined;
}

/** The agent's answer after the dial. */
export type OpenAnswer = OpenedTarget | { readonly ok: false; readonly error: OutcomeCode; readonly detail: string };

/** Maximum length of the JSON of a head, bytes. */
export const MAX_HEAD_BYTES = 4096;

/** A peer may ask for any timeout; no dial takes longer than this. */
const MAX_TIMEOUT_MS = 300_000;
const LENGTH_BYTES = 2;
const MAX_DETAIL_BYTES = 200;

/** A malformed value counts as absent: it never refuses a CONNECT. */
export const traceparent = z.string().max(64).optional().catch(undefined);

const requestSchema = z.object({
  kind: z.string().max(32).default("connect"),
  target: z.string().max(MAX_HEAD_BYTES).optional(),
  timeoutMs: z.number().positive().optional(),
  id: z.string().max(128).optional(),
  timed: z.boolean().optional(),
  traceparent,
});

const kindSchema = z.object({ kind: z.string() });

export const milliseconds = z.number().min(0).max(3_600_000);
const openTimes = z.object({ dnsMs: milliseconds, policyMs: milliseconds.optional(), dialMs: milliseconds });

export const openedSchema = z.object({
  ok: z.literal(true),
  address: z.string().max(512).optional(),
  times: openTimes.optional(),
  /** The agent has made spans of its steps itself. */
  traced: z.boolean().optional(),
});

const answerSchema = z.union([
  openedSchema,
  z.object({ error: z.string().max(64), detail: z.string().max(MAX_HEAD_BYTES).optional() }),
]);

/** The head of a CONNECT, which goes with the SYN. */
export function encodeOpen(request: OpenRequest): Buffer {
  const { target, timeoutMs } = request;
  return encodeHead({ ...request, target: formatTarget(target), timeoutMs: wholeMs(timeoutMs) });
}

/** The head of the agent's answer. A code that an agent may not send becomes `internal`. */
export function encodeAnswer(answer: OpenAnswer): Buffer {
  if (answer.ok) return encodeHead(answer);
  const error = outcome(answer.error).fromAgent === true ? answer.error : "internal";
  return encodeHead({ error, detail: printable(answer.detail, MAX_DETAIL_BYTES) });
}

/** A time for a head: at least 1 ms. */
export function wholeMs(ms: number): number {
  return Math.max(1, Math.round(ms));
}

/** Encodes a value as a head: uint16 length and JSON, without fields that are undefined. */
export function encodeHead(value: object): Buffer {
  const json = JSON.stringify(value);
  const length = Buffer.byteLength(json);
  if (length > MAX_HEAD_BYTES) throw new CulvertError("internal", `the head of a stream would have ${length} bytes`);
  const head = Buffer.allocUnsafe(LENGTH_BYTES + length);
  head.writeUInt16BE(length, 0);
  head.write(json, LENGTH_BYTES, "utf8");
  return head;
}

/** Reads the request from a stream; what follows stays there. Rejects with a `CulvertError` that can be the answer. */
export function readOpen(stream: Duplex, deadlineMs: number): Promise<OpenRequest> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      stop();
      reject(new CulvertError("internal", `no whole head of a stream within ${deadlineMs} ms`));
    }, deadlineMs);
    const onHead = (json: Buffer): void => {
      clearTimeout(timer);
      try {
        resolve(parseOpen(json));
      } catch (error) {
        reject(error);
      }
    };
    const onLost = (error: Error): void => {
      clearTimeout(timer);
      reject(error);
    };
    const stop = receiveHead(stream, onHead, onLost);
  });
}

/**
 * Reads one head from a stream and calls back once, with its JSON or with an error; returns a function that stops
 * waiting. It uses neither promises nor timers, because each CONNECT passes here twice. `read(n)` returns exactly n
 * bytes or none until the stream ends, so nothing has to be put back.
 */
export function receiveHead(
  stream: Duplex,
  onHead: (json: Buffer) => void,
  onLost: (error: Error) => void,
): () => void {
  let length = -1;
  const stop = () => {
    stream.removeListener("readable", onReadable);
    stream.removeListener("end", onEnd);
    stream.removeListener("error", onError);
    stream.removeListener("close", onEnd);
  };
  const fail = (error: Error) => {
    stop();
    onLost(error);
  };
  const onEnd = () => fail(new CulvertError("agent_lost", "the stream ended before its head was whole"));
  const onError = (error: Error) => fail(error);
  const onReadable = () => {
    if (length < 0) {
      const prefix: Buffer | null = stream.read(LENGTH_BYTES);
      if (prefix === null) return;
      if (prefix.length < LENGTH_BYTES) return onEnd();
      length = prefix.readUInt16BE(0);
      if (length === 0 || length > MAX_HEAD_BYTES) {
        return fail(
          new CulvertError("internal", `a stream's head claims ${length} bytes, 1 to ${MAX_HEAD_BYTES} are legal`),
        );
      }
    }
    const json: Buffer | null = stream.read(length);
    if (json === null) return;
    if (json.length < length) return onEnd();
    stop();
    onHead(json);
  };
  stream.on("readable", onReadable);
  stream.on("end", onEnd);
  stream.on("error", onError);
  stream.on("close", onEnd);
  return stop;
}

/** Parses a request. Throws `CulvertError`: `bad_target`, `forbidden` for an unknown kind, else `internal`. */
export function parseOpen(json: Buffer): OpenRequest {
  const value = jsonOf(json);
  const request = requestSchema.safeParse(value);
  // The kind is checked first: the other fields of a later kind may not fit this schema.
  const kind = request.data?.kind ?? kindSchema.safeParse(value).data?.kind;
  if (kind !== undefined && kind !== "connect") {
    throw new CulvertError("forbidden", `streams of kind "${printable(kind, 32)}" are not taken here`);
  }
  if (!request.success) throw new CulvertError("internal", "the head of a stream is not a request");
  const { target, timeoutMs, id, timed, traceparent } = request.data;
  return {
    kind: "connect",
    target: parseTarget(target),
    timeoutMs: Math.min(timeoutMs ?? MAX_TIMEOUT_MS, MAX_TIMEOUT_MS),
    id: printable(id ?? "", 128),
    ...(timed === true && { timed }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

/** Parses an answer. It keeps only codes that an agent may send, and one line of the text. */
export function parseAnswer(json: Buffer): OpenAnswer {
  const answer = answerSchema.safeParse(jsonOf(json));
  if (!answer.success) throw new CulvertError("internal", "the agent's answer to a stream is malformed");
  if ("ok" in answer.data) return opened(answer.data);
  const code = answer.data.error;
  const detail = printable(answer.data.detail ?? "", MAX_DETAIL_BYTES);
  if (isOutcomeCode(code) && outcome(code).fromAgent === true) return { ok: false, error: code, detail };
  const named = code === "internal" ? "" : `the agent answered "${printable(code, 64)}": `;
  return { ok: false, error: "internal", detail: printable(`${named}${detail}`, MAX_DETAIL_BYTES) };
}

/** The answer of an agent that has dialled, with an address that a log may show. */
export function opened({ address, times, traced }: z.infer<typeof openedSchema>): OpenedTarget {
  return {
    ok: true,
    ...(address !== undefined && { address: printable(address) }),
    ...(times && { times }),
    ...(traced === true && { traced }),
  };
}
