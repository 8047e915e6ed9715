import { type FrameShape, frame } from "../../shared/link/testing/frames.ts";
import type { MiddleboxBehaviour, Sides } from "./middlebox.ts";
import type { Random } from "./random.ts";

const HEAD_END = "\r\n\r\n";
const [CONTINUATION, TEXT, CLOSE, PING, PONG] = [0x0, 0x1, 0x8, 0x9, 0xa];

/** Answers every request itself, as a portal does, and leaves the connection open. */
export function answers(answer: string): MiddleboxBehaviour {
  return { fromAgent: (_bytes, { toAgent }) => toAgent(Buffer.from(answer)), fromServer: () => {} };
}

type Edit = (head: string) => string;

/** Passes all on but the HTTP heads, which it changes. */
export function edits(heads: { readonly request?: Edit; readonly answer?: Edit }): MiddleboxBehaviour {
  const request = new HeadEditor(heads.request);
  const answer = new HeadEditor(heads.answer);
  return {
    fromAgent: (bytes, { toServer }) => request.push(bytes, toServer),
    fromServer: (bytes, { toAgent }) => answer.push(bytes, toAgent),
  };
}

class HeadEditor {
  readonly #edit: Edit;
  #head: Buffer | undefined = Buffer.alloc(0);

  constructor(edit: Edit = (head) => head) {
    this.#edit = edit;
  }

  push(bytes: Buffer, pass: (bytes: Buffer) => void): void {
    if (this.#head === undefined) {
      pass(bytes);
      return;
    }
    this.#head = Buffer.concat([this.#head, bytes]);
    const end = this.#head.indexOf(HEAD_END);
    if (end < 0) return;
    const head = this.#head.subarray(0, end + HEAD_END.length).toString("latin1");
    const rest = this.#head.subarray(end + HEAD_END.length);
    this.#head = undefined;
    pass(Buffer.concat([Buffer.from(this.#edit(head), "latin1"), rest]));
  }
}

/** Holds the bytes of these directions until there are `bytes` of them, or each for `forMs`. */
export function holdsBack(
  directions: "from the agent" | "from the server" | "both",
  { bytes = Number.POSITIVE_INFINITY, forMs = Number.POSITIVE_INFINITY },
): MiddleboxBehaviour {
  const kept: Store[] = [];
  const store = (held: boolean): Store => {
    const made = held ? new Store(bytes, forMs) : new Store(0, 0);
    kept.push(made);
    return made;
  };
  const up = store(directions !== "from the server");
  const down = store(directions !== "from the agent");
  return {
    fromAgent: (chunk, { toServer }) => up.push(chunk, toServer),
    fromServer: (chunk, { toAgent }) => down.push(chunk, toAgent),
    stop: () => kept.forEach((each) => void each.stop()),
  };
}

class Store {
  readonly #bytes: number;
  readonly #forMs: number;
  /** In order; each with the timer that lets it go. */
  #held: { readonly chunk: Buffer; readonly timer: NodeJS.Timeout | undefined }[] = [];

  constructor(bytes: number, forMs: number) {
    this.#bytes = bytes;
    this.#forMs = forMs;
  }

  push(chunk: Buffer, pass: (bytes: Buffer) => void): void {
    const release = (upTo: number): void => {
      const due = this.#held.splice(0, upTo);
      for (const { timer } of due) clearTimeout(timer);
      pass(Buffer.concat(due.map((each) => each.chunk)));
    };
    const timer = Number.isFinite(this.#forMs) ? setTimeout(() => release(1), this.#forMs) : undefined;
    this.#held.push({ chunk, timer });
    const length = this.#held.reduce((sum, each) => sum + each.chunk.length, 0);
    if (length >= this.#bytes) release(this.#held.length);
  }

  stop(): void {
    for (const { timer } of this.#held) clearTimeout(timer);
  }
}

/** The changes of a WebSocket-aware box to each message. */
export interface Rewriting {
  /** Mask keys towards the server, where a client has to mask. */
  readonly mask: "random" | "zero";
  /** Messages of these opcodes are cut into fragments of odd sizes, down to nothing. */
  readonly fragments?: boolean;
  /** Binary messages that wait together become one. */
  readonly coalesces?: boolean;
  /** Number of pings, and of pongs that nobody asked for, in front of each frame and inside messages. */
  readonly pings?: number;
  /** Its output is cut at any byte, also into pieces of a few bytes. */
  readonly pieces?: boolean;
}

/** Speaks WebSocket to both sides: the same messages, in other frames, under other masks. */
export class Rewriter implements MiddleboxBehaviour {
  readonly #random: Random;
  readonly #rewriting: Rewriting;
  readonly #up = new Frames();
  readonly #down = new Frames();
  /** Frames that it has made, and its pings that were answered. */
  made = 0;
  answered = 0;

  constructor(random: Random, rewriting: Rewriting) {
    this.#random = random;
    this.#rewriting = rewriting;
  }

  fromAgent(bytes: Buffer, sides: Sides): void {
    this.#write(this.#up.push(bytes), sides.toServer, true);
  }

  fromServer(bytes: Buffer, sides: Sides): void {
    this.#write(this.#down.push(bytes), sides.toAgent, false);
  }

  #write({ head, frames }: Parsed, pass: (bytes: Buffer) => void, masked: boolean): void {
    const out: Buffer[] = [head];
    for (const shape of this.#rewriting.coalesces ? coalesced(frames) : frames) {
      // Answers to pings of its own end here: whoever is behind it has not asked.
      if (shape.opcode === PONG) this.answered++;
      else this.#remake(shape, out, masked);
    }
    const bytes = Buffer.concat(out);
    if (!this.#rewriting.pieces) pass(bytes);
    else for (const piece of this.#cut(bytes, this.#random.between(1, 8))) pass(piece);
  }

  #remake({ opcode, payload, final = true }: Whole, out: Buffer[], masked: boolean): void {
    const { fragments = false, pings = 0 } = this.#rewriting;
    const add = (shape: FrameShape): void => {
      this.made++;
      out.push(frame(masked ? { ...shape, mask: this.#mask() } : shape));
    };
    const parts = fragments && opcode < CLOSE ? this.#cut(payload, this.#random.between(1, 5)) : [payload];
    for (const [index, part] of parts.entries()) {
      for (let i = 0; i < pings; i++) add({ opcode: this.#random.pick([PING, PONG]), payload: this.#word() });
      const isLast = index === parts.length - 1;
      add({ opcode: index === 0 ? opcode : CONTINUATION, payload: part, final: final && isLast });
    }
  }

  #word(): Buffer {
    return Buffer.alloc(this.#random.pick([0, 0, 4, 125]), 0x70);
  }

  #mask(): Buffer {
    const key = Buffer.alloc(4);
    if (this.#rewriting.mask === "random") key.writeUInt32BE(this.#random.between(0, 2 ** 32 - 1));
    return key;
  }

  /** Cuts into this number of parts; some have nothing in them. */
  #cut(bytes: Buffer, parts: number): Buffer[] {
    const cuts = Array.from({ length: parts - 1 }, () => this.#random.between(0, bytes.length));
    const edges = [0, ...cuts.sort((one, other) => one - other), bytes.length];
    return edges.slice(1).map((to, index) => bytes.subarray(edges[index], to));
  }
}

type Whole = FrameShape & { readonly payload: Buffer };

interface Parsed {
  /** HTTP, as it was. */
  readonly head: Buffer;
  /** Whole frames, unmasked. */
  readonly frames: Whole[];
}

/** Neighbours that are whole binary messages, as one. */
function coalesced(frames: readonly Whole[]): Whole[] {
  const merged: Whole[] = [];
  for (const shape of frames) {
    const last = merged.at(-1);
    if (last && isBinary(last) && isBinary(shape)) {
      merged[merged.length - 1] = { ...last, payload: Buffer.concat([last.payload, shape.payload]) };
    } else merged.push(shape);
  }
  return merged;
}

function isBinary({ opcode, final }: Whole): boolean {
  return opcode > TEXT && opcode < CLOSE && final === true;
}

/** One direction of a WebSocket, frame by frame (RFC 6455 §5.2). */
class Frames {
  #rest = Buffer.alloc(0);
  #inHead = true;

  push(bytes: Buffer): Parsed {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    const head = this.#takeHead();
    const frames: Whole[] = [];
    if (this.#inHead) return { head, frames };
    for (let next = this.#next(); next !== undefined; next = this.#next()) frames.push(next);
    return { head, frames };
  }

  #takeHead(): Buffer {
    const end = this.#inHead ? this.#rest.indexOf(HEAD_END) : -1;
    if (end < 0) return Buffer.alloc(0);
    this.#inHead = false;
    return this.#take(end + HEAD_END.length);
  }

  #next(): Whole | undefined {
    const rest = this.#rest;
    if (rest.length < 2) return undefined;
    const [first = 0, second = 0] = rest;
    const short = second & 0x7f;
    const lengthBytes = short === 126 ? 2 : short === 127 ? 8 : 0;
    const maskAt = 2 + lengthBytes;
    const begin = maskAt + ((second & 0x80) !== 0 ? 4 : 0);
    if (rest.length < begin) return undefined;
    const length = lengthBytes === 2 ? rest.readUInt16BE(2) : lengthBytes === 8 ? rest.readUInt32BE(6) : short;
    if (rest.length < begin + length) return undefined;
    const whole = this.#take(begin + length);
    const payload = Buffer.from(whole.subarray(begin));
    const mask = whole.subarray(maskAt, begin);
    if (mask.length > 0) for (let i = 0; i < length; i++) payload[i] = (payload[i] ?? 0) ^ (mask[i % 4] ?? 0);
    return { opcode: first & 0x0f, final: (first & 0x80) !== 0, payload };
  }

  #take(length: number): Buffer {
    const taken = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(length);
    return taken;
  }
}

/** Close frames of a box that ends a WebSocket politely, to the agent and to the server. */
export function closeFrames(code: number): { readonly toAgent: Buffer; readonly toServer: Buffer } {
  const payload = Buffer.from([code >> 8, code & 0xff]);
  const shape = { opcode: CLOSE, payload };
  return { toAgent: frame(shape), toServer: frame({ ...shape, mask: Buffer.from([1, 2, 3, 4]) }) };
}
