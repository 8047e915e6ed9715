import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { parseRetryAfter } from "../net/retry-after.ts";
import { printable } from "../outcomes.ts";
import { LinkRefused } from "../wire/handshake.ts";

/** What stands between and answers in place of the server: a word for metrics. */
export type MiddleBoxKind =
  /** The server, or somebody before it, saw a request without the upgrade that was sent. */
  | "upgrade_stripped"
  /** A portal that wants a login, a proxy or a balancer that shows its own page. */
  | "web_page"
  | "redirected"
  /** A balancer or proxy that has nobody behind it. */
  | "gateway";

/** The upgrade was answered, and not by the server: who it may have been, and what to do. */
export class MiddleBox extends Error {
  override readonly name = "MiddleBox";
  readonly kind: MiddleBoxKind;
  readonly status: number;
  readonly retryAfterMs: number | undefined;

  constructor(kind: MiddleBoxKind, status: number, message: string, retryAfterMs: number | undefined) {
    super(message);
    this.kind = kind;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
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
export function judgeAnswer(answer: Answer, body: string): LinkRefused | MiddleBox {
  const { statusCode: status = 0, statusMessage = "", headers } = answer;
  const backInMs = parseRetryAfter(headers["retry-after"]);
  const box = (kind: MiddleBoxKind, what: string, cure: string) =>
    new MiddleBox(kind, status, `${what} (${describe(answer, body)}): ${cure}`, backInMs);
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
  const reason = headers["content-encoding"] === undefined ? printable(body, MAX_BODY_BYTES) : "";
  return new LinkRefused({ status, reason: reason === "" ? printable(statusMessage) : reason, retryAfterMs: backInMs });
}

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
