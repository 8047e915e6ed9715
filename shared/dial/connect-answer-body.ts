import { type AnswerHead, listOf } from "./connect-answer.ts";

/** Bytes of a body that are kept to be shown. */
const MAX_SHOWN_BYTES = 1_024;
/** Of the line that begins a chunk, extensions and all (RFC 9112 §7.1.1), or of a trailer. */
const MAX_LINE_BYTES = 1_024;

/** What the framing says comes next: bytes of the body, or a line about them. */
type Expected =
  | { readonly kind: "bytes"; left: number; readonly chunked: boolean }
  | { readonly kind: "line"; readonly of: "size" | "chunk-end" | "trailer"; text: string }
  | { readonly kind: "end" }
  | { readonly kind: "broken" };

/** Reads the body of a refusal (RFC 9112 §6): its beginning is kept, all of it passed over. Pure. */
export class AnswerBody {
  readonly #head: AnswerHead;
  readonly #limit: number;
  readonly #kept: Buffer[] = [];
  #keptBytes = 0;
  #readBytes = 0;
  #expected: Expected;

  /** `limit`: a body that is longer, framing included, is not read to its end. */
  constructor(head: AnswerHead, limit: number) {
    this.#head = head;
    this.#limit = limit;
    this.#expected = firstOf(head);
  }

  /** It has ended where its framing says, so that another answer may follow. */
  get isComplete(): boolean {
    return this.#expected.kind === "end";
  }

  /** It has no length of its own: no answer can follow. */
  get endsWithConnection(): boolean {
    return this.#expected.kind === "bytes" && this.#expected.left === Number.POSITIVE_INFINITY;
  }

  /** Nothing more is to be read. */
  get isOver(): boolean {
    return this.isComplete || this.#expected.kind === "broken" || this.#readBytes >= this.#limit;
  }

  /** Its beginning; empty where it is compressed: unpacking what a stranger packed is not worth a sentence. */
  get text(): string {
    const packed = listOf(this.#head, "content-encoding").some((coding) => coding !== "" && coding !== "identity");
    return packed ? "" : Buffer.concat(this.#kept).toString("utf8");
  }

  /** The bytes behind the body; `undefined`: it is not over. */
  push(chunk: Buffer): Buffer | undefined {
    let rest = chunk;
    while (rest.length > 0 && !this.isOver) {
      const taken = this.#take(rest);
      this.#readBytes += taken;
      rest = rest.subarray(taken);
    }
    return this.isOver ? rest : undefined;
  }

  #take(chunk: Buffer): number {
    const expected = this.#expected;
    if (expected.kind === "bytes") {
      const taken = Math.min(expected.left, chunk.length);
      this.#keep(chunk.subarray(0, taken));
      expected.left -= taken;
      if (expected.left === 0) this.#expected = expected.chunked ? line("chunk-end") : { kind: "end" };
      return taken;
    }
    if (expected.kind !== "line") return 0;
    const end = chunk.indexOf("\n");
    const piece = end < 0 ? chunk : chunk.subarray(0, end + 1);
    expected.text += piece.toString("latin1");
    if (expected.text.length > MAX_LINE_BYTES) this.#expected = { kind: "broken" };
    else if (end >= 0) this.#expected = nextOf(expected.of, expected.text.trim());
    return piece.length;
  }

  #keep(piece: Buffer): void {
    const kept = piece.subarray(0, MAX_SHOWN_BYTES - this.#keptBytes);
    this.#keptBytes += kept.length;
    if (kept.length > 0) this.#kept.push(Buffer.from(kept));
  }
}

function line(of: Extract<Expected, { kind: "line" }>["of"]): Expected {
  return { kind: "line", of, text: "" };
}

function firstOf(head: AnswerHead): Expected {
  const codings = listOf(head, "transfer-encoding");
  if (codings.at(-1) === "chunked") return line("size");
  const [length, ...others] = new Set(listOf(head, "content-length"));
  // Without a length it ends with the connection, however long that takes.
  if (codings.length > 0 || length === undefined)
    return { kind: "bytes", left: Number.POSITIVE_INFINITY, chunked: false };
  if (others.length > 0 || !/^\d{1,15}$/.test(length)) return { kind: "broken" };
  return Number(length) === 0 ? { kind: "end" } : { kind: "bytes", left: Number(length), chunked: false };
}

function nextOf(of: Extract<Expected, { kind: "line" }>["of"], text: string): Expected {
  switch (of) {
    case "size": {
      const [, size] = /^([0-9a-f]{1,8})[ \t]*(?:;.*)?$/i.exec(text) ?? [];
      if (size === undefined) return { kind: "broken" };
      const left = Number.parseInt(size, 16);
      return left === 0 ? line("trailer") : { kind: "bytes", left, chunked: true };
    }
    case "chunk-end":
      return text === "" ? line("size") : { kind: "broken" };
    case "trailer":
      return text === "" ? { kind: "end" } : line("trailer");
  }
}
