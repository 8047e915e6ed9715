import * as z from "zod";
import { MAX_IDENTIFIERS } from "../address/agent-identifiers.ts";
import { firstIssue, schemaMessage } from "../basics/schema-errors.ts";
import { MAX_TOKEN_BYTES } from "../http/bearer.ts";
import { credentialFault } from "../outcomes.ts";
import { HANDSHAKE_VERSION, LinkRefused } from "../wire/handshake.ts";

/** The text messages of a carrier (docs/link-protocol.md). Unknown fields and unknown types are ignored. */

const name = z.string().min(1).max(253);

/** An agent id is used in logs, metrics and command lines. */
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

/** The newest version that the agent speaks. A newer agent also speaks our version (docs/versions.md). */
const offeredVersion = z.literal([HANDSHAKE_VERSION, HANDSHAKE_VERSION + 1], {
  error: `must be ${HANDSHAKE_VERSION} or ${HANDSHAKE_VERSION + 1}; update the older one of agent and server`,
});

/** The version that the server chose. */
const chosenVersion = z.literal(HANDSHAKE_VERSION, {
  error: `must be ${HANDSHAKE_VERSION}, which this agent offered`,
});

const identifiers = z.array(z.string().min(1).max(253)).max(MAX_IDENTIFIERS).readonly().optional();

/** What the agent says that it serves (`AgentIdentifiers`). The server brings it into canonical forms. */
const identifiersSchema = z.object({
  ...{ ipv4: identifiers, ipv6: identifiers, host: identifiers, cidr: identifiers },
  defaultRoute: z.boolean().optional(),
});

const helloSchema = z.object({
  type: z.literal("hello"),
  version: offeredVersion,
  agentId,
  /** Random for each start of a process, so that the server can tell a restart from a second link. */
  instance: name,
  cluster: name.optional(),
  software: z.string().max(256),
  /** The peer only measures: it gets no callers' streams and does not replace the agent of this id. */
  probe: z.boolean().optional(),
  identifiers: identifiersSchema.optional(),
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
export type ResumeAnswer = z.infer<typeof resumedSchema>;

/** How many servers there are. A hint: agents look for so many, within a bound of their own. */
const serverCount = z.number().int().min(1).max(1_000_000);

const welcomeSchema = z.object({
  type: z.literal("welcome"),
  version: chosenVersion,
  serverId: name,
  /** Absent: this server does not know. */
  servers: serverCount.optional(),
  link: name,
  /** Proves that a later resume of this link comes from the same agent. With inner TLS it comes out of that instead. */
  key: secret,
  keepaliveMs: z.number().int().min(10).max(3_600_000),
  /** How long the link waits for a new carrier when one is lost, ms; 0: it ends with its carrier. */
  graceMs: z.number().int().min(0).max(3_600_000),
  /** The window of a new stream, bytes, and the window that it gets while both ends have enough memory. */
  initialWindow: z.number().int().min(4096).max(0xffff_ffff),
  freshWindow: z.number().int().min(4096).max(0xffff_ffff).optional(),
});
export type Welcome = z.infer<typeof welcomeSchema>;

const pingSchema = z.object({ type: z.literal("ping") });
const pongSchema = z.object({ type: z.literal("pong") });

/** All payload before `received` has arrived. */
const ackSchema = z.object({ type: z.literal("ack"), received: offset });

/** The server asks for a new carrier under the same link. */
const rotateSchema = z.object({ type: z.literal("rotate"), reason: z.string().max(256) });

/** The server opens no new streams here: the agent shall connect again, here or elsewhere, after this time. */
const drainSchema = z.object({
  type: z.literal("drain"),
  retryAfterMs: z.number().int().min(0).max(86_400_000),
});

/** The number of servers is another one now. */
const serversSchema = z.object({ type: z.literal("servers"), count: serverCount });

const controlSchema = z.discriminatedUnion("type", [
  helloSchema,
  welcomeSchema,
  resumedSchema,
  pingSchema,
  pongSchema,
  ackSchema,
  rotateSchema,
  drainSchema,
  serversSchema,
]);
export type ControlMessage = z.infer<typeof controlSchema> | OuterHello;

const KNOWN_TYPES: ReadonlySet<unknown> = new Set(controlSchema.options.map(({ shape }) => shape.type.value));
const typeOnly = z.object({ type: z.string(), inner: z.unknown().optional() });

/** Maximum length of a text message, bytes. */
export const MAX_CONTROL_BYTES = 8 * 1024;

/** A control message is malformed, or one too many. It ends the carrier. */
export class BadControlMessage extends Error {
  override readonly name = "BadControlMessage";
}

/**
 * An ack as `JSON.stringify` writes it. They come 200 times a second, and the schemas would cost more than their
 * effect.
 */
const WRITTEN_ACK = /^\{"type":"ack","received":(0|[1-9]\d{0,14})\}$/;

/** Parses at most `MAX_CONTROL_BYTES`. Returns `undefined` for an unknown type; throws `BadControlMessage`. */
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

// ── the first message inside inner TLS, one each way: uint16 length and JSON ─────────────────────────────────────────

/**
 * `bearer`: the agent's token, if it has one. `renews`: this connection proves the identity of that link's agent anew.
 */
const innerHelloSchema = helloSchema.omit({ resume: true }).extend({
  bearer: z.string().max(MAX_TOKEN_BYTES).optional(),
  renews: welcomeSchema.shape.link.optional(),
});
export type InnerHello = z.infer<typeof innerHelloSchema>;

/** It has no key, because both ends take that from the inner TLS. */
const innerWelcomeSchema = welcomeSchema.omit({ key: true });
export type InnerWelcome = z.infer<typeof innerWelcomeSchema>;

const renewedSchema = z.object({ type: z.literal("renewed") });
export type Renewed = z.infer<typeof renewedSchema>;

const refusedSchema = z.object({
  type: z.literal("refused"),
  status: z.number().int().optional(),
  closeCode: z.number().int().optional(),
  reason: z.string().max(2_048),
  fault: z.string().max(64).optional(),
  retryAfterMs: z.number().min(0).optional(),
});
export type Refused = z.infer<typeof refusedSchema>;

const innerReplySchema = z.discriminatedUnion("type", [innerWelcomeSchema, renewedSchema, refusedSchema]);
export type InnerReply = InnerWelcome | Renewed | Refused;

const LENGTH_BYTES = 2;

export function encodeInner(message: InnerHello | InnerReply): Buffer {
  const json = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt16BE(json.length);
  return Buffer.concat([length, json]);
}

/** Splits a first message from the bytes behind it. Returns `undefined` until it is complete. */
export function splitInner(bytes: Buffer): { readonly json: string; readonly rest: Buffer } | undefined {
  if (bytes.length < LENGTH_BYTES) return undefined;
  const end = LENGTH_BYTES + bytes.readUInt16BE(0);
  if (bytes.length < end) return undefined;
  return { json: bytes.toString("utf8", LENGTH_BYTES, end), rest: bytes.subarray(end) };
}

/** Throws an `Error` that says what is wrong. */
export function parseInnerHello(json: string): InnerHello {
  return parse(innerHelloSchema, json, "hello");
}

/** Throws `LinkRefused` if the server refused, or an `Error` that says what is wrong. */
export function parseInnerReply(json: string): InnerWelcome | Renewed {
  const answer = parse(innerReplySchema, json, "answer");
  if (answer.type !== "refused") return answer;
  const { status, closeCode, reason, fault, retryAfterMs } = answer;
  throw new LinkRefused({
    ...(status !== undefined && { status }),
    ...(closeCode !== undefined && { closeCode }),
    ...{ reason, fault: credentialFault(fault), retryAfterMs },
  });
}

function parse<T>(schema: z.ZodType<T>, json: string, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new Error(`the inner ${what} is not JSON`);
  }
  const parsed = schema.safeParse(value, { error: schemaMessage });
  if (parsed.success) return parsed.data;
  throw new Error(`bad inner ${what}: ${firstIssue(parsed.error)}`);
}
