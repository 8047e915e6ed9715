import type { IncomingMessage } from "node:http";

/** What is used of a request's header, whoever has read it: Node's parser, or `readUsualConnect`. */
export type RequestHeader = Pick<
  IncomingMessage,
  "url" | "headers" | "rawHeaders" | "httpVersion" | "httpVersionMajor"
>;

/** A token of a Kubernetes service account has some 1,200 bytes. */
const MAX_BYTES = 4_096;
const LETTER_C = 0x43;

/** A target of host and port, without any byte that a parser could understand differently. */
const REQUEST_LINE = /^CONNECT ([\w.:[\]-]+) HTTP\/1\.1$/;
/** Fields that change nothing about how a request is read, with values of printable ASCII. */
const FIELD = /^(host|user-agent|proxy-authorization): ([!-~](?:[ -~]*[!-~])?)$/i;

/**
 * Reads a header section that is a CONNECT as kube-apiserver, Go and curl's relatives send it, which is nearly every
 * one: Node's HTTP server makes five objects with some thirty listeners for a connection, and this none (measured: 40
 * to 60 µs of a CONNECT).
 * `undefined`: it is anything else, and Node's parser decides; whatever is read here, Node's parser reads the same way.
 */
export function readUsualConnect(header: Buffer): RequestHeader | undefined {
  if (header[0] !== LETTER_C || header.length > MAX_BYTES) return undefined;
  const [requestLine = "", ...lines] = header.toString("latin1").split("\r\n");
  const url = REQUEST_LINE.exec(requestLine)?.[1];
  // The section ends with an empty line, and so with two empty pieces.
  if (url === undefined || lines.pop() !== "" || lines.pop() !== "") return undefined;
  const headers: Record<string, string> = {};
  const rawHeaders: string[] = [];
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? [];
    if (name === undefined || value === undefined) return undefined;
    headers[name.toLowerCase()] ??= value; // of several, Node keeps the first
    rawHeaders.push(name, value);
  }
  return { url, headers, rawHeaders, httpVersion: "1.1", httpVersionMajor: 1 };
}
