import type { TurnQueue } from "../basics/turn-queue.ts";
import { BadControlMessage, type ControlMessage, MAX_CONTROL_BYTES, parseControl } from "./control.ts";

/** Messages that are kept until there is a listener, or until the first one has had its turn. */
const MAX_EARLY_MESSAGES = 8;

/** A peer may send `burst` messages of a kind at once, and `perSecond` in the long run. */
interface Rate {
  readonly kind: string;
  readonly perSecond: number;
  readonly burst: number;
}

/**
 * Braces, brackets, colons and commas in a message: each may begin a value, and to parse many values takes long. The
 * longest hello has some 600, with 64 IPv6 addresses.
 */
const MAX_VALUES = 1_024;
const BEGINS_VALUE = new Set(Buffer.from("{[:,"));
/** An ack is shorter than this, bytes. */
const LONGEST_ACK = 256;

/** An end acknowledges at most every 5 ms. A path that stood still delivers the acks of that time at once. */
const ACK_RATE: Rate = { kind: "acks", perSecond: 300, burst: 15_000 };
/** With the shortest --keepalive-time, 100 ms, ten pings and ten pongs come in a second. */
const OTHER_RATE: Rate = { kind: "control messages", perSecond: 40, burst: 100 };

/** Bounds how often a peer sends control messages of one kind. */
class RateLimit {
  readonly #rate: Rate;
  #left: number;
  #countedAt = performance.now();

  constructor(rate: Rate) {
    this.#rate = rate;
    this.#left = rate.burst;
  }

  /** Counts one message. Throws `BadControlMessage` when there are too many. */
  count(): void {
    const { kind, perSecond, burst } = this.#rate;
    const now = performance.now();
    this.#left = Math.min(burst, this.#left + ((now - this.#countedAt) / 1_000) * perSecond) - 1;
    this.#countedAt = now;
    if (this.#left < 0) throw new BadControlMessage(`too many ${kind}`);
  }
}

export interface ControlReaderActions {
  onPing(): void;
  onPong(): void;
  /** A message breaks the rules: the carrier is to end. */
  onViolation(sentence: string): void;
}

/** Reads the control messages of one carrier: bounds their number, answers none, and delivers them to one listener. */
export class ControlReader {
  readonly #actions: ControlReaderActions;
  readonly #acks = new RateLimit(ACK_RATE);
  readonly #others = new RateLimit(OTHER_RATE);
  /** Where the first message waits to be read. `undefined` from then on. */
  #turns: TurnQueue | undefined;
  /** The first message and those behind it, while it waits for its turn. */
  #unread: Buffer[] = [];
  #listener: ((message: ControlMessage) => void) | undefined;
  #early: ControlMessage[] = [];
  #stopped = false;

  constructor(turns: TurnQueue | undefined, actions: ControlReaderActions) {
    this.#turns = turns;
    this.#actions = actions;
  }

  get listener(): ((message: ControlMessage) => void) | undefined {
    return this.#listener;
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

  /** Nothing more is read. */
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
      if (isAck && message?.type !== "ack") this.#others.count();
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
    (isAck ? this.#acks : this.#others).count();
    if (text.length > MAX_VALUES && countValues(text) > MAX_VALUES)
      throw new BadControlMessage("a control message has too many values");
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
