import * as z from "zod";
import { MAX_IDENTIFIERS } from "../address/agent-identifiers.ts";
import { TokenBucket } from "../basics/rate-limit.ts";
import { firstIssue, schemaMessage } from "../basics/text.ts";
import type { TurnQueue } from "../basics/timers.ts";
import { HANDSHAKE_VERSION } from "../wire/handshake.ts";

/** The text messages of a carrier (docs/link-protocol.md). Unknown fields and unknown types are ignored. */

const name = z.string().min(1).max(253);

/** An agent id is used in logs, metrics and command lines. */
const agentId = name.regex(/^[A-Za-z0-9._:-]+$/);

export function isAgentId(text: string): boolean {
  return agentId.safeParse(text).success;
}

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

const MAX_FEATURES = 16;
const FEATURE = /^[a-z][a-z\d-]{0,31}$/;

/** The features that a peer names (`FEATURES`). Other words, and words beyond the bound, are ignored. */
const features = z.preprocess(
  (value) => (Array.isArray(value) ? value.filter(isFeature).slice(0, MAX_FEATURES) : undefined),
  z.array(z.string()).readonly().optional(),
);

function isFeature(value: unknown): boolean {
  return typeof value === "string" && FEATURE.test(value);
}

const identifiers = z.array(z.string().min(1).max(253)).max(MAX_IDENTIFIERS).readonly().optional();

/** The identifiers of the agent (`AgentIdentifiers`). The server brings them into canonical forms. */
const identifiersSchema = z.object({
  ipv4: identifiers,
  ipv6: identifiers,
  host: identifiers,
  cidr: identifiers,
  defaultRoute: z.boolean().optional(),
});

export const helloSchema = z.object({
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
  /** The proxy that the agent's connection goes through, for operators. */
  proxy: z.string().max(300).optional().catch(undefined),
  features,
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

/** How many servers there are. A hint: agents look for this number of servers, within a bound of their own. */
const serverCount = z.number().int().min(1).max(1_000_000);

export const welcomeSchema = z.object({
  type: z.literal("welcome"),
  version: chosenVersion,
  serverId: name,
  /** Absent: this server does not know. */
  servers: serverCount.optional(),
  features,
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

/** An ack as `JSON.stringify` writes it. They come 200 times a second; schemas would cost more than their effect. */
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

// ── reading them ────────────────────────────────────────────────────────────────────────────────────────────────────

/** Messages that are kept until there is a listener, or until the first one has had its turn. */
const MAX_EARLY_MESSAGES = 8;

/**
 * Braces, brackets, colons and commas in a message: each may begin a value, and to parse many values takes long. The
 * longest hello has some 600, with 64 IPv6 addresses.
 */
const MAX_VALUES = 1_024;
const BEGINS_VALUE = new Set(Buffer.from("{[:,"));
/** An ack is shorter than this, bytes. */
const LONGEST_ACK = 256;

/** An end acknowledges at most every 5 ms. A path that stood still delivers the acks of that time at once. */
const ACK_RATE = { perSecond: 300, burst: 15_000 };
/** With the shortest --keepalive-time, 100 ms, ten pings and ten pongs come in a second. */
const OTHER_RATE = { perSecond: 40, burst: 100 };

interface ControlReaderActions {
  onPing(): void;
  onPong(): void;
  /** A message breaks the rules: the carrier is to end. */
  onViolation(sentence: string): void;
}

/** Reads the control messages of one carrier: bounds their number, answers none, and delivers them to one listener. */
export class ControlReader {
  readonly #actions: ControlReaderActions;
  readonly #acks = new TokenBucket(ACK_RATE);
  readonly #others = new TokenBucket(OTHER_RATE);
  /** Where the first message waits to be read. `undefined` from then on. */
  #turns: TurnQueue | undefined;
  /** The first message and those after it, while it waits for its turn. */
  #unread: Buffer[] = [];
  #listener: ((message: ControlMessage) => void) | undefined;
  #early: ControlMessage[] = [];
  #stopped = false;

  constructor(turns: TurnQueue | undefined, actions: ControlReaderActions) {
    this.#turns = turns;
    this.#actions = actions;
  }

  /** Messages that came without a listener are delivered to the next one, in order. */
  set listener(listener: ((message: ControlMessage) => void) | undefined) {
    this.#listener = listener;
    if (listener === undefined || this.#early.length === 0) return;
    queueMicrotask(() => {
      for (const message of this.#early.splice(0)) this.#deliver(message);
    });
  }

  /** The text of a whole message. */
  push(text: Buffer): void {
    if (this.#stopped) return;
    if (this.#turns === undefined) this.#read(text);
    else this.#readInTurn(text, this.#turns);
  }

  stop(): void {
    this.#stopped = true;
  }

  #readInTurn(text: Buffer, turns: TurnQueue): void {
    this.#unread.push(text);
    if (this.#unread.length > MAX_EARLY_MESSAGES) this.#actions.onViolation("too many messages before an answer");
    if (this.#unread.length > 1) return;
    turns.run(() => {
      this.#turns = undefined;
      for (const each of this.#unread.splice(0)) this.#read(each);
    });
  }

  #read(text: Buffer): void {
    if (this.#stopped) return;
    try {
      const isAck = text.length < LONGEST_ACK && text.includes('"ack"');
      this.#count(text, isAck);
      const message = parseControl(text.toString("utf8"));
      if (isAck && message?.type !== "ack") this.#countOther();
      if (message?.type === "ping") this.#actions.onPing();
      else if (message?.type === "pong") this.#actions.onPong();
      else if (message !== undefined) this.#deliver(message);
    } catch (error) {
      if (!(error instanceof BadControlMessage)) throw error;
      this.#actions.onViolation(error.message);
    }
  }

  /** Counts a message that may be an ack, and refuses one that takes long to parse, before it is parsed. */
  #count(text: Buffer, isAck: boolean): void {
    if (text.length > MAX_CONTROL_BYTES) throw new BadControlMessage("a control message is too long");
    if (!isAck) this.#countOther();
    else if (this.#acks.take(1) > 0) throw new BadControlMessage("too many acks");
    if (text.length > MAX_VALUES && countValues(text) > MAX_VALUES)
      throw new BadControlMessage("a control message has too many values");
  }

  #countOther(): void {
    if (this.#others.take(1) > 0) throw new BadControlMessage("too many control messages");
  }

  #deliver(message: ControlMessage): void {
    if (this.#listener !== undefined) this.#listener(message);
    else if (this.#early.length < MAX_EARLY_MESSAGES) this.#early.push(message);
  }
}

function countValues(text: Buffer): number {
  let values = 0;
  for (const byte of text) if (BEGINS_VALUE.has(byte)) values++;
  return values;
}
