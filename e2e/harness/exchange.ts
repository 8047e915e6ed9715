import type { Socket } from "node:net";
import type { Connection } from "./caller.ts";
import { Payload, PayloadCheck } from "./payload.ts";
import { Random } from "./random.ts";
import { type TcpTarget, tcpTarget } from "./targets/tcp.ts";
import { within } from "./wait.ts";

/** How each end of an exchange talks: pieces of random length with random pauses, or nothing until the last word. */
export interface Pace {
  /** 0: nothing. */
  readonly maxBytes: number;
  readonly maxPauseMs: number;
}

const HEADER_BYTES = 12;
const LAST_WORD_BYTES = 32;
const FINISH_MS = 60_000;

/** Bytes both ways at a pace, for as long as a test wants; both ends know every byte that must come. */
export class Exchange {
  readonly name: string;
  readonly #target: ExchangeTarget;
  readonly #seed: number;
  readonly #end: ExchangeEnd;

  /** Begins on a CONNECT to `target` that was answered by 200. */
  constructor(name: string, { socket }: Connection, target: ExchangeTarget, seed: number, pace: Pace) {
    this.name = name;
    this.#target = target;
    this.#seed = seed;
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32BE(seed, 0);
    header.writeUInt32BE(pace.maxBytes, 4);
    header.writeUInt32BE(pace.maxPauseMs, 8);
    socket.write(header);
    this.#end = new ExchangeEnd(socket, { sent: 2 * seed, awaited: 2 * seed + 1 }, pace);
  }

  /** Bytes that have arrived so far, at the caller and at the target. */
  get received(): { readonly down: number; readonly up: number } {
    return { down: this.#end.check.bytes, up: this.#target.end(this.#seed)?.check.bytes ?? 0 };
  }

  /** A last word each way, then the clean ends. Throws what went wrong since the start: a loss, a wrong byte. */
  async finish(): Promise<void> {
    this.#end.lastWord();
    await within(this.#end.ended, FINISH_MS, `the end of ${this.name}`).catch((error: Error) => {
      throw new Error(`${this.name}, at the caller: ${error.message}`, { cause: error });
    });
    const other = this.#target.end(this.#seed);
    if (!other) throw new Error(`${this.name}: the target never heard of it`);
    await within(other.ended, FINISH_MS, `the target's end of ${this.name}`).catch((error: Error) => {
      throw new Error(`${this.name}, at the target: ${error.message}`, { cause: error });
    });
    this.#end.check.expect(other.sent, `${this.name}, at the caller`);
    other.check.expect(this.#end.sent, `${this.name}, at the target`);
  }
}

/** The other ends of exchanges. */
export interface ExchangeTarget extends TcpTarget {
  end(seed: number): ExchangeEnd | undefined;
}

export async function exchangeTarget(): Promise<ExchangeTarget> {
  const ends = new Map<number, ExchangeEnd>();
  const target = await tcpTarget((socket) => {
    const onReadable = () => {
      const header: Buffer | null = socket.read(HEADER_BYTES);
      if (!header) return;
      socket.off("readable", onReadable);
      const seed = header.readUInt32BE(0);
      const pace = { maxBytes: header.readUInt32BE(4), maxPauseMs: header.readUInt32BE(8) };
      const end = new ExchangeEnd(socket, { sent: 2 * seed + 1, awaited: 2 * seed }, pace);
      ends.set(seed, end);
      socket.on("end", () => end.lastWord());
    };
    socket.on("readable", onReadable);
  });
  return Object.assign(target, { end: (seed: number) => ends.get(seed) });
}

/** One end: talks at its pace until its last word, and checks what it hears. */
class ExchangeEnd {
  readonly #socket: Socket;
  readonly #payload: Payload;
  readonly #pace: Pace;
  readonly #random: Random;
  #timer: NodeJS.Timeout | undefined;
  #said = false;
  readonly check: PayloadCheck;
  sent = 0;
  /** Resolves with the other's clean end; rejects with what came in its place. */
  readonly ended: Promise<void>;

  constructor(socket: Socket, seeds: { readonly sent: number; readonly awaited: number }, pace: Pace) {
    this.#socket = socket;
    this.#payload = new Payload(seeds.sent);
    this.#pace = pace;
    this.#random = new Random(seeds.sent);
    this.check = new PayloadCheck(seeds.awaited);
    this.ended = this.#listen();
    this.ended.catch(() => {}); // told by `finish`
    socket.on("drain", () => this.#pause());
    socket.resume();
    if (pace.maxBytes > 0) this.#pause();
  }

  lastWord(): void {
    if (this.#said) return;
    this.#said = true;
    clearTimeout(this.#timer);
    this.#write(LAST_WORD_BYTES);
    this.#socket.end();
  }

  #listen(): Promise<void> {
    const began = performance.now();
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      const lost = (how: string) => {
        clearTimeout(this.#timer);
        const after = `${Math.round(performance.now() - began)} ms, ${this.sent} bytes sent, ${this.check.bytes} received`;
        reject(new Error(`${how} after ${after}`));
      };
      socket.on("data", (chunk: Buffer) => this.check.take(chunk));
      socket.on("end", resolve);
      socket.on("error", (error) => lost(error.message));
      socket.on("close", () => lost("closed without an end"));
    });
  }

  #pause(): void {
    if (this.#said || this.#timer || this.#pace.maxBytes === 0) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        if (this.#socket.destroyed) return;
        if (this.#write(this.#random.between(1, this.#pace.maxBytes))) this.#pause();
      },
      this.#random.between(0, this.#pace.maxPauseMs),
    );
  }

  /** Whether the socket takes more; otherwise it says so. */
  #write(length: number): boolean {
    let writable = true;
    for (let left = length; left > 0; ) {
      const chunk = this.#payload.at(this.sent, left);
      this.sent += chunk.length;
      left -= chunk.length;
      writable = this.#socket.write(chunk);
    }
    return writable;
  }
}
