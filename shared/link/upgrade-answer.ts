import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { clockNote } from "../net/clock-skew.ts";
import { parseRetryAfter } from "../net/retry-after.ts";
import { printable } from "../outcomes.ts";
import { LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";

/** What stands between and answers in place of the server: a word for metrics. */
export type MiddleBoxKind =
  /** The upgrade that was sent did not reach the server whole, or its answer did not come back whole. */
  | "upgrade_stripped"
  /** A portal that wants a login, a proxy or a balancer that shows its own page. */
  | "web_page"
  | "redirected"
  /** A balancer or proxy that has nobody behind it. */
  | "gateway"
  /** TLS stands, and nothing at all comes. */
  | "no_answer"
  /** The upgrade was answered, and nothing comes behind the answer. */
  | "held_back";

/** Somebody stands between who is no help: how that shows, and what to do. */
export class MiddleBox extends Error {
  override readonly name = "MiddleBox";
  readonly kind: MiddleBoxKind;
  readonly retryAfterMs: number | undefined;

  constructor(kind: MiddleBoxKind, message: string, retryAfterMs?: number | undefined) {
    super(message);
    this.kind = kind;
    this.retryAfterMs = retryAfterMs;
  }
}

/** What is said where an attempt ends because nothing came: no more than that is known. */
export const HELD_BACK = {
  no_answer:
    "TLS stands, and nothing was answered; does something in between hold the answer back, or the server hang?",
  held_back:
    "the upgrade was answered, and nothing came behind the answer: something in between holds bytes back, and must not buffer, or the server hangs",
} as const satisfies Partial<Record<MiddleBoxKind, string>>;

/** How ws begins its errors about an answer of 101, or what stands behind it, that no server sends (RFC 6455 §4.1, §5.2). */
const DAMAGED = /^(Invalid (Upgrade|Sec-WebSocket|WebSocket frame)|Server (sent|indicated))/;

/** The answer was 101, and something in between has taken from it or added to it; `undefined`: any other error of ws. */
export function damagedAnswer({ message }: Error): MiddleBox | undefined {
  if (!DAMAGED.test(message)) return undefined;
  return new MiddleBox(
    "upgrade_stripped",
    `the answer to the upgrade did not come as the server sends it (${message}): ${CHANGED}`,
  );
}

/**
 * Some boxes take the subprotocol out of the answer, which says only what the welcome behind it says again: a server
 * that did not know it would have refused.
 */
export function mendAnswer({ headers }: IncomingMessage): void {
  headers["sec-websocket-protocol"] ??= SUBPROTOCOL;
}

/** Bytes of an answer's body that are read, and shown. */
const MAX_BODY_BYTES = 1024;
/** An answer whose body does not end is told with what is there: the status is what counts. */
const BODY_TIMEOUT_MS = 1_000;

/** A plain HTTP answer in place of the upgrade: the server's no, with its reason, or a word from somebody in between. */
export function readAnswer(response: IncomingMessage, done: (why: LinkRefused | MiddleBox) => void): void {
  const chunks: Buffer[] = [];
  let length = 0;
  const finish = (): void => {
    clearTimeout(timer);
    done(judgeAnswer(response, Buffer.concat(chunks).toString("utf8")));
  };
  const timer = setTimeout(finish, BODY_TIMEOUT_MS);
  response.on("data", (chunk: Buffer) => {
    chunks.push(chunk.subarray(0, MAX_BODY_BYTES - length));
    length += chunk.length;
    if (length >= MAX_BODY_BYTES) response.destroy();
  });
  response.on("error", () => {}); // a body that breaks off: what is there has to do
  response.on("close", finish);
}

type Answer = Pick<IncomingMessage, "statusCode" | "statusMessage" | "headers">;

/**
 * Ours are plain sentences with a status of refusal; whatever else answers an upgrade stands in between. `body`: its
 * beginning. Pure.
 */
export function judgeAnswer(answer: Answer, body: string, now = Date.now()): LinkRefused | MiddleBox {
  const { statusCode: status = 0, statusMessage = "", headers } = answer;
  const backInMs = parseRetryAfter(headers["retry-after"]);
  const box = (kind: MiddleBoxKind, what: string, cure: string) =>
    new MiddleBox(kind, `${what} (${describe(answer, body)}): ${cure}`, backInMs);
  // No upgrade to Node, which has not found both of its headers: the rest is not HTTP, and nobody's words.
  if (status === 101) {
    const { upgrade = "none", connection = "none" } = headers;
    const came = printable(`Upgrade: ${upgrade}, Connection: ${connection}`, 120);
    return new MiddleBox(
      "upgrade_stripped",
      `the answer to the upgrade came without its headers (101, ${came}): ${CHANGED}`,
    );
  }
  if (status === 426) {
    return box(
      "upgrade_stripped",
      "the upgrade did not reach the server",
      `something in between takes it away; ${CURE}`,
    );
  }
  if (status >= 300 && status < 400) {
    const where = printable(headers.location ?? "", 120);
    return box("redirected", `the upgrade was sent elsewhere, to "${where}"`, `a portal that wants a login? ${CURE}`);
  }
  // RFC 9110 §15.5.8, RFC 6585 §6: neither is a server's word.
  if (status === 407 || status === 511) return box("web_page", "something in between wants a login", CURE);
  const page = /html/i.test(headers["content-type"] ?? "") || /^\s*<(!doctype|html)/i.test(body);
  // The server itself says 503 only, and names no software.
  if (status === 502 || status === 504 || (status === 503 && (page || "server" in headers))) {
    return box(
      "gateway",
      "a proxy or balancer has no server behind it",
      "is the server up, and its balancer told of it?",
    );
  }
  if (page || (status >= 200 && status < 300)) {
    return box("web_page", "something in between answered in place of the server", CURE);
  }
  // The server says it to nobody who asks as it was asked.
  if (status === 400) {
    return box(
      "upgrade_stripped",
      "the upgrade did not reach the server whole",
      `something in between takes of it; ${CURE}`,
    );
  }
  const reason = headers["content-encoding"] === undefined ? printable(body, MAX_BODY_BYTES) : "";
  // Whose certificate or token is refused may only have a wrong clock.
  const note = status === 401 ? clockNote(headers.date, now) : "";
  return new LinkRefused({ status, reason: `${reason || printable(statusMessage)}${note}`, retryAfterMs: backInMs });
}

const CHANGED = "something in between has changed it; it must leave WebSockets as they are, or their TLS unopened";
const CURE = "it must let WebSocket upgrades to the server through, or its TLS unopened";

/** What it says about itself: the status, the page's title, and the names that boxes put into answers. */
function describe({ statusCode, statusMessage, headers }: Answer, body: string): string {
  const { via, server } = headers as IncomingHttpHeaders & { readonly server?: string };
  const readable = headers["content-encoding"] === undefined ? body : "";
  const title = /<title>\s*([^<]{1,100})/i.exec(readable)?.[1];
  const words = [
    `${statusCode} ${statusMessage}`,
    title !== undefined && `page "${title.trim()}"`,
    readable !== "" && !readable.includes("<") && `"${readable.slice(0, 100).trim()}"`,
    server && `server "${server}"`,
    via && `via "${via}"`,
  ];
  return printable(words.filter(Boolean).join(", "), 300);
}
