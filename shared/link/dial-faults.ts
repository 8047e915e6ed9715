import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import net from "node:net";
import { revealsSecret } from "../basics/text.ts";
import { DialFault } from "../faults/faults.ts";
import { peerAction } from "../http/connection.ts";
import { clockNote, faultIn, isOurs, parseRetryAfter, printableLocation } from "../http/response-fields.ts";
import { printable } from "../outcomes.ts";
import { CloseCode, LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";
import { CarrierLost, PeerViolation } from "./link-events.ts";

export const CONNECTING = "connecting";
export const SECURING = "in the TLS handshake";
export const UPGRADING = "waiting for the upgrade";
export const GREETING = "waiting for welcome";
export type DialStep = typeof CONNECTING | typeof SECURING | typeof UPGRADING | typeof GREETING;

/** A proxy that a connection goes through. */
export interface PassedProxy {
  /** `formatProxy`. */
  readonly at: string;
  /** The option or variable that names it. */
  readonly from: string;
}

/** The step that a dial has reached, and the connection it uses. */
export interface DialProgress {
  readonly step: DialStep;
  /** The server's name. */
  readonly host: string;
  readonly proxy: PassedProxy | undefined;
  /** TLS is up, and the other end has chosen no protocol (ALPN), although HTTP/1.1 was offered. */
  readonly noProtocol?: boolean | undefined;
}

function factsOf({ host, proxy }: DialProgress): { readonly by: string; readonly proxyFrom?: string } {
  return proxy === undefined ? { by: host } : { by: proxy.at, proxyFrom: proxy.from };
}

/** The fault of a step that has taken all the time there was. */
export function timeoutFault(progress: DialProgress, sentence: string): Error {
  const { step, proxy } = progress;
  switch (step) {
    case CONNECTING:
      return new Error(sentence);
    case SECURING:
      return new DialFault("tls", `${sentence}: ${endlessHandshake(proxy)}`, { facts: factsOf(progress) });
    case UPGRADING:
      return middleboxFault("no_answer", `${sentence}: ${HELD_BACK.no_answer}`);
    case GREETING:
      return middleboxFault("held_back", `${sentence}: ${HELD_BACK.held_back}`);
  }
}

/** The agent cannot tell which of these does not answer. */
function endlessHandshake(proxy: PassedProxy | undefined): string {
  if (proxy === undefined) {
    return "TCP is connected, but the TLS handshake does not finish: does a firewall filter server names, or is the port in --server another one? Else the server may hang: look at its log";
  }
  return `the proxy ${proxy.at} has opened the connection, but the TLS handshake over it does not finish: does the proxy let no TLS to the server through, or lead nowhere? Else the port in --server may be another one, or the server may hang`;
}

/** Why a carrier ended before its welcome. Pings may find before the deadline that nothing arrives. */
export function unwelcomed(reason: Error): Error {
  if (reason instanceof CarrierLost && reason.lossCause === "silent") {
    return middleboxFault("held_back", `${reason.message} ${GREETING}: ${HELD_BACK.held_back}`);
  }
  const isDamaged = reason instanceof PeerViolation && reason.closeCode === CloseCode.protocolError;
  return isDamaged ? damagedAnswer(reason) : reason;
}

/** Adds the step to an error of the network, and what may cause it there. An error that is a sentence already stays. */
export function dialFault(error: Error, progress: DialProgress): Error {
  if (error instanceof LinkRefused || error instanceof DialFault) return error;
  const { step, host, proxy, noProtocol } = progress;
  const { code = "" } = error as NodeJS.ErrnoException;
  const options = { facts: factsOf(progress), cause: error };
  const ofServer = { facts: { by: host }, cause: error };
  if (NO_TLS.has(code)) {
    const sentence =
      proxy === undefined
        ? `what answers there does not speak TLS: check the port in --server (${step})`
        : `the proxy ${proxy.at} has opened the connection, and what answers there speaks no TLS: the port in --server may be a wrong one, or the proxy shows a page of its own (a login)`;
    return new DialFault("no_tls", sentence, options);
  }
  if (code === UNRECOGNIZED_NAME) return new DialFault("unknown_name", unknownName(host), ofServer);
  if (code === NO_PROTOCOL || isHttp2(error)) return new DialFault("grpc_server", `${HTTP2_ONLY} (${step})`, ofServer);
  const broken = peerAction(error);
  if (broken !== undefined && step === UPGRADING && noProtocol === true) {
    return new DialFault("grpc_server", `${peerOf(proxy)} ${broken} ${LIKE_GRPC}`, ofServer);
  }
  if (broken !== undefined && step === SECURING) {
    return new DialFault("tls", `${peerOf(proxy)} ${broken} ${CUT_HANDSHAKE}`, options);
  }
  if (broken !== undefined && step === UPGRADING) {
    return new Error(`${peerOf(proxy)} ${broken} ${CUT_UPGRADE}`, { cause: error });
  }
  const message = `${broken === undefined ? wordsOf(error) : `${peerOf(proxy)} ${broken}`} (${step})`;
  if (step === SECURING) return new DialFault("tls", message, ofServer);
  return Object.assign(new Error(message, { cause: error }), code !== "" && { code });
}

function peerOf(proxy: PassedProxy | undefined): string {
  return proxy === undefined ? "what answers there" : `the proxy ${proxy.at}, or what answers behind it,`;
}

const CUT_HANDSHAKE =
  "in the TLS handshake; routers and balancers do this when they reach no server: does the server run? If its log says nothing of this, does a firewall read server names, or is the port in --server another one?";
const CUT_UPGRADE =
  "in place of an answer to the upgrade: does something in between let no WebSockets through? Else look at the server's log";

/** OpenSSL's message names a place in its code; its `reason` is for people. */
function wordsOf({ message, reason, code }: NodeJS.ErrnoException & { readonly reason?: string }): string {
  return reason !== undefined && code?.startsWith("ERR_SSL_") ? `TLS: ${reason} (${code})` : message;
}

/** OpenSSL's codes for bytes that are no TLS record. */
const NO_TLS: ReadonlySet<string> = new Set(["ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"]);

/** Node's code for the alert of a peer that speaks no HTTP/1.1 (RFC 7301 §3.2). */
const NO_PROTOCOL = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";
const HTTP2_ONLY =
  "what answers there speaks HTTP/2 alone, as konnectivity-server (gRPC) does, and no culvert server: correct host and port in --server";
/** gRPC in Go closes so on clients without HTTP/2, once TLS is up; other servers may, too. */
const LIKE_GRPC =
  "once TLS stood, as konnectivity-server (gRPC) does: does --server lead to a culvert server? If so, something in between lets no WebSockets through, or the server's log says more";

/** The first frame of every HTTP/2 server is SETTINGS (RFC 9113 §3.4, §6.5), which is never longer than this. */
const SETTINGS = 0x04;
const MAX_SETTINGS_BYTES = 0xff;

/** An HTTP/2 frame came in place of an answer in HTTP/1.1. */
function isHttp2(error: Error & { readonly rawPacket?: Buffer }): boolean {
  const { rawPacket } = error;
  if (rawPacket === undefined || rawPacket.length < 9) return false;
  const length = rawPacket.readUIntBE(0, 3);
  return length <= MAX_SETTINGS_BYTES && rawPacket[3] === SETTINGS && rawPacket.readUInt32BE(5) === 0;
}

/** Node's code for the alert (RFC 6066 §3). */
const UNRECOGNIZED_NAME = "ERR_SSL_TLSV1_UNRECOGNIZED_NAME";

function unknownName(host: string): string {
  if (net.isIP(host) !== 0) {
    return "the server is found by its name (SNI), and an address has none: give its name in --server";
  }
  return `nobody there has the name "${host}" (SNI): check the name in --server; the server's clusters list theirs in agents.sni`;
}

// ── the answer to the upgrade ─────────────────────────────────────────────────────────────────────────────────────

/** How it shows that a middlebox, or another server, is in place of the server. */
type MiddleboxFault = "upgrade_stripped" | "web_page" | "redirected" | "gateway" | "no_answer" | "held_back";

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

/** The sentence where an attempt ends because nothing came: no more is known. */
export const HELD_BACK = {
  no_answer: "TLS is up, but no answer came: does something in between hold the answer back, or does the server hang?",
  held_back:
    "the upgrade was answered, and nothing came after the answer: something in between holds bytes back, and must not buffer, or the server hangs",
} as const satisfies Partial<Record<MiddleboxFault, string>>;

/** ws refuses a 101, or what follows it, that no server sends (RFC 6455 §4.1, §5.2): a middlebox has changed it. */
export function damagedAnswer({ message }: Error): DialFault {
  return middleboxFault(
    "upgrade_stripped",
    `the answer to the upgrade did not come as the server sends it (${message}): ${CHANGED}`,
  );
}

/**
 * Some middleboxes take the subprotocol out of the answer, which says only what the welcome after it says again: a
 * server that did not know it would have refused.
 */
export function mendAnswer({ headers }: IncomingMessage): void {
  headers["sec-websocket-protocol"] ??= SUBPROTOCOL;
}

/** Bytes of an answer's body that are read, and shown. */
const MAX_BODY_BYTES = 1024;
/** An answer whose body does not end in this time, ms, is reported with what has arrived: the status is what counts. */
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

interface Answer {
  readonly statusCode?: number | undefined;
  readonly statusMessage?: string | undefined;
  readonly headers: IncomingHttpHeaders;
}

/**
 * Our answers carry a `Proxy-Status` of culvert; any other answer to an upgrade is from a middlebox. The software's
 * name in `Server` or `Via` tells nothing: balancers write theirs into our answers, too. `body`: its beginning. Pure.
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
  // Our server never answers 426 or 400 to a request like ours.
  if (status === 426) return middlebox("upgrade_stripped", NOT_REACHED, `something in between takes it away; ${CURE}`);
  if (status === 400 && !isPage) {
    return middlebox("upgrade_stripped", `${NOT_REACHED} whole`, `something in between removes part of it; ${CURE}`);
  }
  if (status > 400 && isOurs(headers["proxy-status"])) {
    const sentence = isPage ? "" : shown(plainText(headers, body));
    const reason = printable(sentence, MAX_BODY_BYTES) || printable(shown(answer.statusMessage));
    // Whose certificate or token is refused may only have a wrong clock.
    const note = status === 401 ? clockNote(headers.date, now) : "";
    return new LinkRefused({ status, reason, note, fault: faultIn(headers["proxy-status"]), retryAfterMs });
  }
  if (status >= 300 && status < 400) {
    const what = `the upgrade was sent elsewhere, to "${printableLocation(shown(headers.location))}"`;
    return middlebox("redirected", what, `a portal that wants a login? ${CURE}`);
  }
  // RFC 9110 §15.5.2 and §15.5.8, RFC 6585 §6.
  if (status === 401 || status === 407 || status === 511) {
    return middlebox("web_page", "something in between wants a login", WHO);
  }
  if (status >= 502 && status <= 504)
    return middlebox("gateway", NONE_BEHIND, "is the server up, and is it configured at the balancer?");
  return middlebox("web_page", ANSWERED, status === 404 ? WHERE : WHO);
}

/**
 * Whether a culvert server's port for callers has answered. Only such a port asks for a proxy's login under our mark;
 * an agent's port answers 401. To a client with a caller's certificate it names the method that it serves (RFC 9110
 * §10.2.1). Other proxies send both answers as well, but without our mark.
 */
export function isCallersPort({ statusCode, headers }: Answer): boolean {
  if (!isOurs(headers["proxy-status"])) return false;
  return statusCode === 407 || (statusCode === 405 && headers.allow === "CONNECT");
}

const NOT_REACHED = "the upgrade did not reach the server";
const NONE_BEHIND = "a proxy or balancer has no server behind it";
const ANSWERED = "something in between answered in place of the server";
const CHANGED = "something in between has changed it; it must leave WebSockets as they are, or their TLS unopened";
const CURE = "it must let WebSocket upgrades to the server through, or its TLS unopened";
const WHERE = "are host, port and path in --server right, and do they lead to the server?";
const WHO = `are host and port in --server those of a culvert server? If so, ${CURE}`;

type Showing = (text: string | undefined) => string;

/** Some backends repeat the request with all its headers: what holds a secret is left out whole. */
function showing(secrets: readonly string[]): Showing {
  return (text = "") =>
    secrets.some((secret) => revealsSecret(text, secret)) ? "(not shown: it repeats our token)" : text;
}

function plainText(headers: IncomingHttpHeaders, body: string): string {
  return headers["content-encoding"] === undefined ? body : "";
}

/**
 * The answer's words about its sender: the status, the page's title, and the names that middleboxes put into answers.
 */
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
