import { z } from "zod";
import { firstIssue, schemaMessage } from "../basics/schema-errors.ts";
import { HANDSHAKE_VERSION } from "../wire/handshake.ts";

/** The text messages of a carrier (design: "Handshake"). Unknown fields are ignored, unknown types too. */

const name = z.string().min(1).max(253);

/** An agent's id stands in logs, in metrics of others and on command lines. */
const agentId = name.regex(/^[A-Za-z0-9._:-]+$/);

/** Payload bytes since a link began: a position in one of its directions. */
const offset = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
/** 256 bits in base64url: the key of a link, or a proof made with it. */
const secret = z.string().regex(/^[\w-]{43}$/);

/**
 * A new carrier for a link that is there already. `received`: what the agent has of the link. `proof`: see `LinkKey`. A
 * resume that proves nothing is ignored, and its agent is given a new link.
 */
const resumeSchema = z.preprocess(
  (value) => (value instanceof Object && "proof" in value ? value : undefined),
  z.object({ link: name, proof: secret, counter: offset, received: offset }).optional(),
);

/** The newest version that the agent speaks. One newer than ours will do with ours (docs/versions.md). */
const offeredVersion = z.literal([HANDSHAKE_VERSION, HANDSHAKE_VERSION + 1], {
  error: `must be ${HANDSHAKE_VERSION} or ${HANDSHAKE_VERSION + 1}; update the older one of agent and server`,
});

/** What the server chose of that. */
const chosenVersion = z.literal(HANDSHAKE_VERSION, {
  error: `must be ${HANDSHAKE_VERSION}, which this agent offered`,
});

export const helloSchema = z.object({
  type: z.literal("hello"),
  version: offeredVersion,
  agentId,
  /** Random for each process start: tells a restart from a second link. */
  instance: name,
  cluster: name.optional(),
  software: z.string().max(256),
  /** This peer only measures: it gets no callers' streams, and nothing of its agent's id is touched. */
  probe: z.boolean().optional(),
  resume: resumeSchema,
});
export type Hello = z.infer<typeof helloSchema>;
export type ProvenResume = NonNullable<Hello["resume"]>;

/** The hello of a carrier on which inner TLS begins or continues. It does not say which agent it belongs to. */
const outerHelloSchema = z.object({
  type: z.literal("hello"),
  version: offeredVersion,
  inner: z.literal(true),
  resume: resumeSchema,
});
export type OuterHello = z.infer<typeof outerHelloSchema>;

/** The server's answer to a resume. `received`: what the server has of the link. */
const resumedSchema = z.object({
  type: z.literal("resumed"),
  version: chosenVersion,
  received: offset,
  proof: secret,
});
export type Resumed = z.infer<typeof resumedSchema>;

export const welcomeSchema = z.object({
  type: z.literal("welcome"),
  version: chosenVersion,
  serverId: name,
  link: name,
  /** Proves that a later resume of this link comes from the same agent. With inner TLS it comes out of that instead. */
  key: secret,
  keepaliveMs: z.number().int().min(10).max(3_600_000),
  /** How long the link waits for a new carrier when one is lost; 0: it ends with its carrier. */
  graceMs: z.number().int().min(0).max(3_600_000),
  /** What both ends let a new stream send, bytes, and what they make of it while they have memory enough. */
  initialWindow: z.number().int().min(4096).max(0xffff_ffff),
  freshWindow: z.number().int().min(4096).max(0xffff_ffff).optional(),
});
export type Welcome = z.infer<typeof welcomeSchema>;

const pingSchema = z.object({ type: z.literal("ping") });
const pongSchema = z.object({ type: z.literal("pong") });

/** All payload up to `received` has arrived and need not be kept. */
const ackSchema = z.object({ type: z.literal("ack"), received: offset });

/** The server asks for a new carrier under the same link. */
const rotateSchema = z.object({ type: z.literal("rotate"), reason: z.string().max(256) });

/** The server takes no new streams here: come back, here or elsewhere, after so long. */
const drainSchema = z.object({
  type: z.literal("drain"),
  retryAfterMs: z.number().int().min(0).max(86_400_000),
});

const controlSchema = z.discriminatedUnion("type", [
  helloSchema,
  welcomeSchema,
  resumedSchema,
  pingSchema,
  pongSchema,
  ackSchema,
  rotateSchema,
  drainSchema,
]);
export type ControlMessage = z.infer<typeof controlSchema> | OuterHello;

const KNOWN_TYPES: ReadonlySet<unknown> = new Set(controlSchema.options.map(({ shape }) => shape.type.value));
const typeOnly = z.object({ type: z.string(), inner: z.unknown().optional() });

/** Largest text message, bytes. */
export const MAX_CONTROL_BYTES = 8 * 1024;

/** A control message that is none: the carrier ends. The message is a sentence. */
export class BadControlMessage extends Error {
  override readonly name = "BadControlMessage";
}

/** An ack as `JSON.stringify` writes it, 200 times a second: two schemas would cost more than all else that it does. */
const WRITTEN_ACK = /^\{"type":"ack","received":(0|[1-9]\d{0,14})\}$/;

/** Of a text that is no longer than `MAX_CONTROL_BYTES`. `undefined`: a type that a later version may know. Throws `BadControlMessage`. */
export function parseControl(text: string): ControlMessage | undefined {
  const ack = WRITTEN_ACK.exec(text);
  if (ack !== null) return { type: "ack", received: Number(ack[1]) };
  const value = parseJson(text);
  const { data } = typeOnly.safeParse(value);
  if (data === undefined) throw new BadControlMessage("a control message must be a JSON object with a type");
  if (!KNOWN_TYPES.has(data.type)) return undefined;
  const isOuter = data.type === "hello" && data.inner === true;
  const parsed = (isOuter ? outerHelloSchema : controlSchema).safeParse(value, { error: schemaMessage });
  if (parsed.success) return parsed.data;
  throw new BadControlMessage(`bad ${data.type} message: ${firstIssue(parsed.error)}`);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new BadControlMessage("a control message is not JSON");
  }
}
