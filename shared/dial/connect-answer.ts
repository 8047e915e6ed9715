import { GrowingBytes } from "../basics/bytes.ts";

/** The head of a proxy's answer to CONNECT (RFC 9112 §4, §5). */
export interface AnswerHead {
  readonly status: number;
  readonly reason: string;
  /** Of HTTP/1. */
  readonly minor: 0 | 1;
  /** By name in lower case; each field on its own. */
  readonly fields: ReadonlyMap<string, readonly string[]>;
}

/** Nobody can tell what this is. The message is the end of a sentence that begins with the proxy. */
export class UnreadableAnswer extends Error {}

/** All heads before the final answer together: an interim one costs what it holds. Real ones have some hundred bytes. */
export const MAX_HEAD_BYTES = 16 * 1024;

const BEGINNING = "HTTP/1.";
const TLS_ALERT = "\x15\x03";
const LF = 0x0a;
const CR = 0x0d;

/** Reads the head of the final answer out of pieces of any size, and passes over interim ones (RFC 9110 §15.2). Pure. */
export class AnswerReader {
  readonly #bytes = new GrowingBytes();
  /** Where the head begins that is being read, and how far its end has been looked for. */
  #from = 0;
  #seen = 0;

  /** `rest`: the bytes behind the head. Throws `UnreadableAnswer`. */
  push(chunk: Buffer): { readonly head: AnswerHead; readonly rest: Buffer } | undefined {
    this.#bytes.append(chunk);
    for (;;) {
      this.#checkBeginning();
      const end = this.#findEnd();
      if ((end ?? this.#bytes.length) > MAX_HEAD_BYTES) {
        throw new UnreadableAnswer(`sends a header longer than ${MAX_HEAD_BYTES / 1024} KiB`);
      }
      if (end === undefined) return undefined;
      const head = parseHead(this.#bytes.bytes.subarray(this.#from, end).toString("latin1"));
      if (head.status >= 200) return { head, rest: Buffer.from(this.#bytes.bytes.subarray(end)) };
      if (head.status === 101) throw new UnreadableAnswer("answers CONNECT with an upgrade to another protocol");
      this.#from = this.#seen = end;
    }
  }

  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }

  /** What is no HTTP says so in its first bytes, and may never send a header's end. */
  #checkBeginning(): void {
    const beginning = this.#bytes.bytes.subarray(this.#from, this.#from + BEGINNING.length).toString("latin1");
    if (BEGINNING.startsWith(beginning) || (beginning.length === 1 && TLS_ALERT.startsWith(beginning))) return;
    throw new UnreadableAnswer(
      beginning.startsWith(TLS_ALERT)
        ? "speaks TLS where plain HTTP is expected: is it an https:// proxy?"
        : "does not speak HTTP/1: is this the address of an HTTP proxy?",
    );
  }

  /** Behind the empty line; a bare LF ends a line, too, as RFC 9112 §2.2 lets it. */
  #findEnd(): number | undefined {
    const bytes = this.#bytes.bytes;
    for (let at = this.#seen; at < bytes.length; at++) {
      if (bytes[at] !== LF) continue;
      const next = at + (bytes[at + 1] === CR ? 2 : 1);
      if (bytes[next] === LF) return next + 1;
      if (next >= bytes.length) {
        this.#seen = at;
        return undefined;
      }
    }
    this.#seen = bytes.length;
    return undefined;
  }
}

function parseHead(text: string): AnswerHead {
  // A line that begins with a space goes on with the one before it (RFC 9112 §5.2).
  const [statusLine = "", ...lines] = text
    .trimEnd()
    .replace(/\r?\n[ \t]+/g, " ")
    .split(/\r?\n/);
  const [, minor, status, reason = ""] = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/.exec(statusLine) ?? [];
  if (status === undefined) throw new UnreadableAnswer("answers CONNECT with a status line that is none");
  const fields = new Map<string, string[]>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    // RFC 9110 §5.5: a CR or NUL in a value is dangerous to whoever passes it on.
    if (colon <= 0 || /[\r\0]/.test(line)) throw new UnreadableAnswer("answers CONNECT with a header that is none");
    const name = line.slice(0, colon).toLowerCase();
    const values = fields.get(name) ?? [];
    values.push(line.slice(colon + 1).trim());
    fields.set(name, values);
  }
  return { status: Number(status), reason, minor: minor === "0" ? 0 : 1, fields };
}

/** All values of a field that is a list, in lower case. */
export function listOf(head: AnswerHead, name: string): string[] {
  const values = head.fields.get(name) ?? [];
  return values.flatMap((value) => value.toLowerCase().split(",")).map((item) => item.trim());
}

/** Does the proxy mean to keep the connection for another request? `Proxy-Connection` is what proxies of old say. */
export function keepsConnection(head: AnswerHead): boolean {
  const said = [...listOf(head, "connection"), ...listOf(head, "proxy-connection")];
  return !said.includes("close") && (head.minor === 1 || said.includes("keep-alive"));
}
