import { GrowingBytes } from "../basics/bytes.ts";
import { getOrMake } from "../basics/collections.ts";
import { HeaderEnd } from "../http/connection.ts";

/** Status line and header of a proxy's answer to CONNECT (RFC 9112 §4, §5). */
export interface AnswerHead {
  readonly status: number;
  readonly reason: string;
  /** The minor version of HTTP/1. */
  readonly minor: 0 | 1;
  /** All values by field name in lower case. */
  readonly fields: ReadonlyMap<string, readonly string[]>;
}

/** The answer is not valid HTTP/1. The message is the end of a sentence that begins with the proxy. */
export class UnreadableAnswer extends Error {}

/** Maximum size of the final head and all interim ones together. Real ones have some hundred bytes. */
export const MAX_HEAD_BYTES = 16 * 1024;

const BEGINNING = "HTTP/1.";
const TLS_ALERT = "\x15\x03";

/** Parses the head of the final answer from pieces of any size and skips interim ones (RFC 9110 §15.2). */
export class AnswerReader {
  /** All heads so far, without the bytes after the final one. */
  readonly #bytes = new GrowingBytes();
  #end = new HeaderEnd();
  /** Where the current head begins. */
  #from = 0;

  /** Returns the head once it is complete, with the bytes after it. Throws `UnreadableAnswer`. */
  push(chunk: Buffer): { readonly head: AnswerHead; readonly rest: Buffer } | undefined {
    for (let rest = chunk; ; ) {
      const length = this.#end.push(rest);
      this.#bytes.append(rest.subarray(0, length));
      rest = rest.subarray(length);
      this.#checkBeginning();
      if (this.#bytes.length > MAX_HEAD_BYTES) {
        throw new UnreadableAnswer(`sends a header longer than ${MAX_HEAD_BYTES / 1024} KiB`);
      }
      if (!this.#end.hasEnded) return undefined;
      const head = parseHead(this.#bytes.bytes.subarray(this.#from).toString("latin1"));
      if (head.status >= 200) return { head, rest };
      if (head.status === 101) throw new UnreadableAnswer("answers CONNECT with an upgrade to another protocol");
      this.#from = this.#bytes.length;
      this.#end = new HeaderEnd();
    }
  }

  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }

  /** Another protocol is recognised by its first bytes, because the end of a header may never come. */
  #checkBeginning(): void {
    const beginning = this.#bytes.bytes.subarray(this.#from, this.#from + BEGINNING.length).toString("latin1");
    if (BEGINNING.startsWith(beginning) || (beginning.length === 1 && TLS_ALERT.startsWith(beginning))) return;
    throw new UnreadableAnswer(
      beginning.startsWith(TLS_ALERT)
        ? "speaks TLS where plain HTTP is expected: is it an https:// proxy?"
        : "does not speak HTTP/1: is this the address of an HTTP proxy?",
    );
  }
}

function parseHead(text: string): AnswerHead {
  // A line that begins with a space continues the previous one (RFC 9112 §5.2).
  const [statusLine = "", ...lines] = text
    .trimEnd()
    .replace(/\r?\n[ \t]+/g, " ")
    .split(/\r?\n/);
  const [, minor, status, reason = ""] = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/.exec(statusLine) ?? [];
  if (status === undefined) throw new UnreadableAnswer("answers CONNECT with an invalid status line");
  const fields = new Map<string, string[]>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    // A CR or NUL in a value is dangerous for every later reader (RFC 9110 §5.5).
    if (colon <= 0 || /[\r\0]/.test(line)) throw new UnreadableAnswer("answers CONNECT with an invalid header");
    const name = line.slice(0, colon).toLowerCase();
    getOrMake(fields, name, () => []).push(line.slice(colon + 1).trim());
  }
  return { status: Number(status), reason, minor: minor === "0" ? 0 : 1, fields };
}

/** All items of a list field, in lower case. */
function listOf(head: AnswerHead, name: string): string[] {
  const values = head.fields.get(name) ?? [];
  return values.flatMap((value) => value.toLowerCase().split(",")).map((item) => item.trim());
}

/** Does the proxy keep the connection for another request? Old proxies use `Proxy-Connection`. */
export function keepsConnection(head: AnswerHead): boolean {
  const options = [...listOf(head, "connection"), ...listOf(head, "proxy-connection")];
  return !options.includes("close") && (head.minor === 1 || options.includes("keep-alive"));
}

/** Number of bytes of a body that are kept for messages. */
const MAX_SHOWN_BYTES = 1_024;

/** The next part of the framing: bytes of the body, or a line. */
type Expected =
  | { readonly kind: "bytes"; left: number; readonly chunked: boolean }
  | { readonly kind: "line"; readonly of: "size" | "chunk-end" | "trailer"; text: string }
  | { readonly kind: "end" }
  | { readonly kind: "broken" };

/** Skips the body of a refusal (RFC 9112 §6) and keeps its beginning. */
export class AnswerBody {
  readonly #head: AnswerHead;
  readonly #limit: number;
  readonly #kept: Buffer[] = [];
  #keptBytes = 0;
  #readBytes = 0;
  #expected: Expected;

  /** `limit`: the number of bytes, with framing, after which the body is not read further. */
  constructor(head: AnswerHead, limit: number) {
    this.#head = head;
    this.#limit = limit;
    this.#expected = firstOf(head);
  }

  /** The body has ended as its framing says, so another answer may follow. */
  get isComplete(): boolean {
    return this.#expected.kind === "end";
  }

  /** The body ends with the connection, so no answer can follow. */
  get endsWithConnection(): boolean {
    return this.#expected.kind === "bytes" && this.#expected.left === Number.POSITIVE_INFINITY;
  }

  /** No more of it is read. */
  get isOver(): boolean {
    return this.isComplete || this.#expected.kind === "broken" || this.#readBytes >= this.#limit;
  }

  /** The beginning of the body. A compressed body gives no text, because decompressing untrusted input is a risk. */
  get text(): string {
    const isCompressed = listOf(this.#head, "content-encoding").some(
      (coding) => coding !== "" && coding !== "identity",
    );
    return isCompressed ? "" : Buffer.concat(this.#kept).toString("utf8");
  }

  /** Returns the bytes after the body, or `undefined` while it is not over. */
  push(chunk: Buffer): Buffer | undefined {
    let rest = chunk;
    while (rest.length > 0 && !this.isOver) {
      const taken = this.#take(rest.subarray(0, this.#limit - this.#readBytes));
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
    if (end >= 0) this.#expected = nextOf(expected.of, expected.text.trim());
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
  // A body without a length ends with the connection.
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
