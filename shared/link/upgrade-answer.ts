import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { revealsSecret } from "../basics/text.ts";
import { DialFault } from "../faults/faults.ts";
import { clockNote } from "../http/clock-skew.ts";
import { faultIn, isOurs, parseRetryAfter, printableLocation } from "../http/response-fields.ts";
import { printable } from "../outcomes.ts";
import { LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";

/** How it shows that a middlebox, or another server, is in place of the server. */
export type MiddleboxFault = "upgrade_stripped" | "web_page" | "redirected" | "gateway" | "no_answer" | "held_back";

/** The dialler's `explain` adds the server's address to the facts. */
export function middleboxFault(fault: MiddleboxFault, message: string, retryAfterMs?: number | undefined): DialFault {
  return new DialFault(fault, message, { facts: { by: "" }, retryAfterMs });
}

/** The server's port for callers has answered: no agent gets a tunnel there, however often it asks. */
export class CallersPort extends LinkRefused {
  constructor(status: number) {
    const cure = "correct the port in --server: agents come to the server's --agent-port";
    super({ status, reason: `this is its port for callers (CONNECT), not the one for agents; ${cure}` });
  }
}

/** What is said where an attempt ends because nothing came: no more than that is known. */
export const HELD_BACK = {
  no_answer:
    "TLS stands, and nothing was answered; does something in between hold the answer back, or does the server hang?",
  held_back:
    "the upgrade was answered, and nothing came behind the answer: something in between holds bytes back, and must not buffer, or the server hangs",
} as const satisfies Partial<Record<MiddleboxFault, string>>;

/**
 * ws refuses a 101 answer, or what follows it, that no server sends (RFC 6455 §4.1, §5.2): a middlebox has changed it.
 */
export function damagedAnswer({ message }: Error): DialFault {
  return middleboxFault(
    "upgrade_stripped",
    `the answer to the upgrade did not come as the server sends it (${message}): ${CHANGED}`,
  );
}

/**
 * Some middleboxes take the subprotocol out of the answer, which says only what the welcome behind it says again: a
 * server that did not know it would have refused.
 */
export function mendAnswer({ headers }: IncomingMessage): void {
  headers["sec-websocket-protocol"] ??= SUBPROTOCOL;
}

/** Bytes of an answer's body that are read, and shown. */
const MAX_BODY_BYTES = 1024;
/** An answer whose body does not end is told with what is there: the status is what counts. */
const BODY_TIMEOUT_MS = 1_000;

/**
 * A plain HTTP answer in place of the upgrade: the server's no, with its reason, or a word from somebody in between.
 * `secrets`: what was sent in confidence.
 */
export function readAnswer(
  response: IncomingMessage,
  secrets: readonly string[],
  done: (why: LinkRefused | DialFault) => void,
): void {
  const chunks: Buffer[] = [];
  let length = 0;
  const finish = (): void => {
    clearTimeout(timer);
    done(explainAnswer(response, Buffer.concat(chunks).toString("utf8"), secrets));
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
 * Ours bear our mark; whatever else answers an upgrade stands in between. The software's name in `Server` or `Via`
 * tells nothing: balancers write theirs into our answers, too. `body`: its beginning. Pure.
 */
export function explainAnswer(
  answer: Answer,
  body: string,
  secrets: readonly string[],
  now = Date.now(),
): LinkRefused | DialFault {
  const { statusCode: status = 0, headers } = answer;
  const shown = showing(secrets);
  const retryAfterMs = parseRetryAfter(headers["retry-after"]);
  const middlebox = (kind: MiddleboxFault, what: string, cure: string) =>
    middleboxFault(kind, `${what} (${describe(answer, body, shown)}): ${cure}`, retryAfterMs);
  // No upgrade to Node, which has not found both of its headers: the rest is not HTTP, and nobody's words.
  if (status === 101) {
    const { upgrade = "none", connection = "none" } = headers;
    const came = printable(`Upgrade: ${shown(upgrade)}, Connection: ${shown(connection)}`, 120);
    return middleboxFault(
      "upgrade_stripped",
      `the answer to the upgrade came without its headers (101, ${came}): ${CHANGED}`,
    );
  }
  if (isCallersPort(answer)) return new CallersPort(status);
  const isPage = /html/i.test(headers["content-type"] ?? "") || /^\s*<(!doctype|html)/i.test(body);
  // The server says these two to nobody who asks as it was asked.
  if (status === 426) {
    return middlebox(
      "upgrade_stripped",
      "the upgrade did not reach the server",
      `something in between takes it away; ${CURE}`,
    );
  }
  if (status === 400 && !isPage) {
    return middlebox(
      "upgrade_stripped",
      "the upgrade did not reach the server whole",
      `something in between takes of it; ${CURE}`,
    );
  }
  if (status > 400 && isOurs(headers["proxy-status"])) {
    const sentence = isPage ? "" : shown(plainText(headers, body));
    const reason = printable(sentence, MAX_BODY_BYTES) || printable(shown(answer.statusMessage));
    // Whose certificate or token is refused may only have a wrong clock.
    const note = status === 401 ? clockNote(headers.date, now) : "";
    return new LinkRefused({ status, reason, note, fault: faultIn(headers["proxy-status"]), retryAfterMs });
  }
  if (status >= 300 && status < 400) {
    const where = printableLocation(shown(headers.location));
    return middlebox(
      "redirected",
      `the upgrade was sent elsewhere, to "${where}"`,
      `a portal that wants a login? ${CURE}`,
    );
  }
  // RFC 9110 §15.5.2 and §15.5.8, RFC 6585 §6.
  if (status === 401 || status === 407 || status === 511) {
    return middlebox("web_page", "something in between wants a login", WHO);
  }
  if (status === 404) {
    return middlebox(
      "web_page",
      ANSWERED,
      "are host, port and path in --server right, and do they lead to the server?",
    );
  }
  if (status >= 502 && status <= 504) {
    return middlebox(
      "gateway",
      "a proxy or balancer has no server behind it",
      "is the server up, and its balancer told of it?",
    );
  }
  return middlebox("web_page", ANSWERED, WHO);
}

/**
 * Nobody else asks for a proxy's login under our mark, where agents hear 401. Whoever has shown a caller's certificate
 * hears which method is served there (RFC 9110 §10.2.1). Any other proxy says both as well, and without our mark.
 */
export function isCallersPort({ statusCode, headers }: Pick<Answer, "statusCode" | "headers">): boolean {
  if (!isOurs(headers["proxy-status"])) return false;
  return statusCode === 407 || (statusCode === 405 && headers.allow === "CONNECT");
}

const ANSWERED = "something in between answered in place of the server";
const CHANGED = "something in between has changed it; it must leave WebSockets as they are, or their TLS unopened";
const CURE = "it must let WebSocket upgrades to the server through, or its TLS unopened";
const WHO = `are host and port in --server those of a culvert server? If so, ${CURE}`;

type Showing = (text: string | undefined) => string;

/**
 * Some backends repeat the request that they were asked, with all its headers: what holds a secret is left out whole.
 */
function showing(secrets: readonly string[]): Showing {
  return (text = "") =>
    secrets.some((secret) => revealsSecret(text, secret)) ? "(not shown: it repeats our token)" : text;
}

function plainText(headers: IncomingHttpHeaders, body: string): string {
  return headers["content-encoding"] === undefined ? body : "";
}

/** What it says about itself: the status, the page's title, and the names that middleboxes put into answers. */
function describe({ statusCode, statusMessage, headers }: Answer, body: string, shown: Showing): string {
  const { via, server } = headers as IncomingHttpHeaders & { readonly server?: string };
  const text = shown(plainText(headers, body));
  const title = /<title>\s*([^<]{1,100})/i.exec(text)?.[1];
  const words = [
    `${statusCode} ${shown(statusMessage)}`,
    title !== undefined && `page "${title.trim()}"`,
    text !== "" && !text.includes("<") && `"${text.slice(0, 100).trim()}"`,
    server && `server "${shown(server)}"`,
    via && `via "${shown(via)}"`,
  ];
  return printable(words.filter(Boolean).join(", "), 300);
}
