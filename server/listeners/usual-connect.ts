import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";

/** The parts of the header of a CONNECT that are used, from Node's parser or from `parseUsualConnect`. */
export interface ConnectHeader {
  readonly url?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly httpVersionMajor: number;
}

/**
 * Reads the first piece of a connection. If a usual CONNECT is whole in it, `onConnect` gets its header, and what
 * follows is unread. Otherwise the whole piece is unread again, and `otherwise` reads it.
 */
export function readUsualConnect(
  socket: Socket,
  onConnect: (header: ConnectHeader) => void,
  otherwise: () => void,
): void {
  const stop = (): void => {
    socket.off("data", onData).off("end", onEnd).pause();
  };
  const onData = (piece: Buffer): void => {
    stop();
    const length = piece.indexOf(HEADER_END) + HEADER_END.length;
    const header = length < HEADER_END.length ? undefined : parseUsualConnect(piece.subarray(0, length));
    const rest = header === undefined ? piece : piece.subarray(length);
    if (rest.length > 0) socket.unshift(rest);
    if (header === undefined) otherwise();
    else onConnect(header);
  };
  const onEnd = (): void => {
    socket.end();
  };
  socket.on("data", onData).on("end", onEnd).resume(); // it may be paused
}

const HEADER_END = "\r\n\r\n";
/** Less than the smallest `--header-limit`: Node's parser refuses what is too large. */
const MAX_BYTES = 1_000;
const METHOD = "CONNECT ";

/** A target of host and port, without any byte that a parser could understand differently. */
const REQUEST_LINE = /^CONNECT ([\w.:[\]-]+) HTTP\/1\.1$/;
/** Fields that change nothing about how a request is read, with values of printable ASCII. */
const FIELD = /^(host|user-agent|proxy-authorization|traceparent): ([!-~](?:[ -~]*[!-~])?)$/i;

/**
 * Parses a CONNECT as kube-apiserver and Go's HTTP clients send it, which is nearly every one. `undefined`: it is
 * anything else, and Node's parser decides. Node's parser reads the same from every header that is parsed here.
 */
export function parseUsualConnect(header: Buffer): ConnectHeader | undefined {
  if (header.length > MAX_BYTES) return undefined;
  const [requestLine = "", ...lines] = header.toString("latin1").split("\r\n");
  const target = REQUEST_LINE.exec(requestLine)?.[1];
  // The header ends with an empty line, and so with two empty pieces.
  if (target === undefined || lines.pop() !== "" || lines.pop() !== "") return undefined;
  const headers: Record<string, string> = {};
  const rawHeaders: string[] = [];
  for (const line of lines) {
    const [, name = "", value] = FIELD.exec(line) ?? [];
    const key = name.toLowerCase();
    if (value === undefined || headers[key] !== undefined) return undefined; // Node joins some fields, and drops others
    headers[key] = value;
    rawHeaders.push(name, value);
  }
  // A part of the text would keep all of it in memory as long as the connection lives, with its token.
  const url = header.toString("latin1", METHOD.length, METHOD.length + target.length);
  return { url, headers, rawHeaders, httpVersionMajor: 1 };
}
