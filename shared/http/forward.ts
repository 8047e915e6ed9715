import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type OutgoingMessage,
  request,
  type ServerResponse,
} from "node:http";
import type { Duplex } from "node:stream";
import { printable } from "../outcomes.ts";

/** The URL of a request to a proxy (RFC 9112 §3.2.2). */
export interface WholeUrl {
  /** `host:port`, which is not parsed yet. */
  readonly target: string;
  /** As it is written: the value of `Host`. */
  readonly authority: string;
  /** With the query, as it is written. */
  readonly path: string;
}

/** The refusal of a request that is none of a proxy's client. */
export const NO_PROXY_REQUEST = "this is an HTTP proxy: send it CONNECT, or requests for whole http:// URLs";

/** The refusal of a body whose coding this proxy does not undo (RFC 9112 §6.1). Its status is 501. */
export const UNKNOWN_CODING = "Transfer-Encoding has another coding than chunked, which this proxy does not pass on";

/** Whether the body has a transfer coding beside `chunked`, which `node:http` leaves in the bytes that it passes on. */
export function hasUnknownCoding({ headers }: IncomingMessage): boolean {
  const codings = headers["transfer-encoding"];
  return codings !== undefined && codings.trim().toLowerCase() !== "chunked";
}

/** The parts of a whole `http://` URL; `undefined` for any other. */
export function wholeUrl(url: string): WholeUrl | undefined {
  const [, authority, rest = ""] = /^http:\/\/(?:[^/?#@]*@)?([^/?#]*)([^#]*)/i.exec(url) ?? [];
  if (authority === undefined) return undefined;
  const target = /:\d+$/.test(authority) ? authority : `${authority.replace(/:$/, "")}:80`;
  return { target, authority, path: rest.startsWith("/") ? rest : `/${rest}` };
}

/** The next hop of a request. */
interface Onward {
  /** The connection to the target, or to a proxy in front of it. It has this one request. */
  readonly connection: Duplex;
  readonly path: string;
  readonly authority: string;
  /** Fields beside those of the client. */
  readonly fields?: OutgoingHttpHeaders;
  /** Ends the connection so that its other end sees a failure and not a clean end. */
  reset(): void;
  /** Answers the client of a target that has ended the connection before its answer. */
  refuse(sentence: string): void;
}

/**
 * Passes a request of a proxy's client on, and the answer back. Bodies, trailers and 100 (Continue) stream both ways;
 * fields of one connection stay on it.
 */
export function forward(asked: IncomingMessage, answer: ServerResponse, onward: Onward): void {
  const { connection, path, authority, fields, reset } = onward;
  const headers = {
    ...forwardedFields(asked),
    ...fields,
    ...(isChunked(asked) && { "transfer-encoding": "chunked" }),
    host: authority,
    connection: "close",
  };
  const sent = request({ method: asked.method, path, headers, createConnection: () => connection });
  sent.on("error", ({ message }) => {
    if (answer.writableEnded) return; // the client has the whole answer
    if (answer.headersSent) answer.destroy();
    else onward.refuse(`the target ended the connection: ${message}`);
  });
  sent.on("continue", () => answer.writeContinue());
  const refuse = (sentence: string): void => {
    onward.refuse(sentence);
    reset();
  };
  sent.on("upgrade", () => refuse("the target has changed to another protocol, for which nobody has asked"));
  sent.on("response", (response) => {
    const { statusCode = 0, statusMessage = "" } = response;
    if (statusCode < 100) {
      refuse(`the target has answered with ${statusCode}, which is no status of HTTP`); // `writeHead` would throw
      return;
    }
    if (hasUnknownCoding(response)) {
      refuse("the target's answer has a transfer coding other than chunked, for which nobody has asked");
      return;
    }
    answer.writeHead(statusCode, printable(statusMessage), forwardedFields(response));
    response.on("data", (chunk: Buffer) => {
      if (!answer.write(chunk)) response.pause();
    });
    answer.on("drain", () => response.resume());
    response.on("end", () => {
      answer.addTrailers(response.trailers as Record<string, string>);
      answer.end();
      if (!sent.writableFinished) reset(); // it has answered before the end of the request
    });
    response.on("error", () => answer.destroy()); // it ended before its end
    sendFields(answer); // the body may come much later
  });
  answer.on("close", () => {
    if (!answer.writableFinished) reset();
  });
  if (!hasBody(asked)) sent.end();
  else {
    sendFields(sent); // the body may come much later, or after 100 (Continue)
    const send = (chunk: Buffer): void => {
      if (!sent.write(chunk)) asked.pause();
    };
    asked.on("data", send);
    sent.on("close", () => asked.off("data", send).resume()); // the rest is dropped
    sent.on("drain", () => asked.resume());
    asked.on("end", () => {
      sent.addTrailers(asked.trailers as Record<string, string>);
      sent.end();
    });
  }
}

/** `flushHeaders` would write the bytes beyond ASCII of a field, which are read as Latin-1, as UTF-8. */
function sendFields(message: OutgoingMessage): void {
  message.write(NO_BYTES);
}

const NO_BYTES = Buffer.alloc(0);

function isChunked({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined;
}

function hasBody(asked: IncomingMessage): boolean {
  return isChunked(asked) || Number(asked.headers["content-length"] ?? 0) > 0;
}

/** Fields of one connection (RFC 9110 §7.6.1), and those that a client sends to this proxy alone. */
const OF_CONNECTION = [
  "connection",
  "proxy-connection",
  "keep-alive",
  "te",
  "trailer", // trailers need no announcement, and `node:http` throws where it stands beside a length
  "transfer-encoding",
  "upgrade",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-authentication-info",
];
/** Fields that `Connection` cannot remove: they decide how a message is framed and where it goes. */
const NEVER_REMOVED = ["content-length", "host"];
const NAME = "culvert";

/** A message, as `node:http` reads it. */
interface Message {
  readonly headers: IncomingHttpHeaders;
  readonly headersDistinct: Readonly<Record<string, string[] | undefined>>;
  readonly httpVersion: string;
}

/** The fields of a message that are passed on, with `Via` (RFC 9110 §7.6.3). */
function forwardedFields({ headers, headersDistinct, httpVersion }: Message): OutgoingHttpHeaders {
  const named = (headers.connection ?? "").toLowerCase().split(",");
  const removed = new Set([...OF_CONNECTION, ...named.map((name) => name.trim())]);
  for (const name of NEVER_REMOVED) removed.delete(name);
  const fields: OutgoingHttpHeaders = {};
  for (const [name, values = []] of Object.entries(headersDistinct)) {
    if (!removed.has(name)) fields[name] = values.length === 1 ? values[0] : values;
  }
  fields["via"] = [...(headersDistinct["via"] ?? []), `${httpVersion} ${NAME}`].join(", ");
  return fields;
}
