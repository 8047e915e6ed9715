import assert from "node:assert/strict";
import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { within } from "./wait.ts";

/** Where a caller's listener is, and with which certificate it is spoken to. */
export type CallerListener =
  | { readonly path: string }
  | { readonly host: string; readonly port: number; readonly tls?: CallerTls };

export interface CallerTls {
  readonly ca: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
}

export interface ConnectOptions {
  /** Sent in the same write as the CONNECT, before any answer. */
  readonly early?: string | Buffer;
  readonly deadlineMs?: number;
  /** The whole request, in place of kube-apiserver's. */
  readonly request?: string;
}

const HEADER_LIMIT = 65_536;

/** An answered CONNECT: the status line as it came, and the socket behind it. */
export class Connection implements AsyncDisposable {
  readonly status: number;
  readonly reason: string;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  /**
   * Bytes that came in the same read as the end of the answer's header: must be none with a 200. They are read again
   * from `socket`.
   */
  readonly head: Buffer;
  readonly socket: Socket;
  /** From the dial of the listener to the whole header of the answer. */
  readonly answeredMs: number;

  constructor(answer: Answer, head: Buffer, socket: Socket, answeredMs: number) {
    this.status = answer.status;
    this.reason = answer.reason;
    this.headers = answer.headers;
    this.head = head;
    this.socket = socket;
    this.answeredMs = answeredMs;
  }

  send(data: string | Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.write(data, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Half-close: no more from us. */
  end(): void {
    this.socket.end();
  }

  /** The next bytes as text; "" at the end. */
  async read(deadlineMs = 15_000): Promise<string> {
    return (await this.#next(undefined, deadlineMs)).toString();
  }

  /** Exactly `length` bytes, fewer only at the end. */
  readBytes(length: number, deadlineMs = 15_000): Promise<Buffer> {
    return this.#next(length, deadlineMs);
  }

  /** Everything up to the end, as text (the body of a refusal). */
  async readAll(deadlineMs = 15_000): Promise<string> {
    const parts: string[] = [];
    for (let part = await this.read(deadlineMs); part !== ""; part = await this.read(deadlineMs)) parts.push(part);
    return parts.join("");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.socket.destroy();
  }

  #next(length: number | undefined, deadlineMs: number): Promise<Buffer> {
    const { socket } = this;
    const { promise, stop } = take(socket, length);
    return within(promise, deadlineMs, "bytes from the tunnel").finally(stop);
  }
}

/** Takes the next bytes of a paused socket; rejects if it fails before. */
function take(socket: Socket, length: number | undefined): { promise: Promise<Buffer>; stop: () => void } {
  const parts: Buffer[] = [];
  let had = 0;
  let stop = () => {};
  const promise = new Promise<Buffer>((resolve, reject) => {
    const tryRead = () => {
      for (;;) {
        const wanted = length === undefined ? undefined : Math.min(length - had, socket.readableLength || 1);
        const chunk: Buffer | null = wanted === 0 ? null : socket.read(wanted);
        if (!chunk) break;
        parts.push(chunk);
        had += chunk.length;
        if (length === undefined) break;
      }
      const enough = length === undefined ? had > 0 : had >= length;
      if (enough || socket.readableEnded) resolve(Buffer.concat(parts));
      else if (socket.errored) reject(socket.errored);
      else if (socket.destroyed) resolve(Buffer.concat(parts));
    };
    socket.on("readable", tryRead).on("end", tryRead).on("close", tryRead);
    stop = () => {
      socket.off("readable", tryRead).off("end", tryRead).off("close", tryRead);
    };
    tryRead();
  });
  return { promise, stop };
}

/**
 * One CONNECT as kube-apiserver makes it: the request line with the target as its authority, `Host: 127.0.0.1`, a
 * blank line. Any status resolves; a closed or silent listener rejects.
 */
export function connectThrough(
  listener: CallerListener,
  target: string,
  { early = "", deadlineMs = 15_000, request }: ConnectOptions = {},
): Promise<Connection> {
  const started = performance.now();
  const socket = dialListener(listener);
  const answered = new Promise<Connection>((resolve, reject) => {
    const parts: Buffer[] = [];
    const onError = (error: Error) => reject(error);
    const onClose = () => reject(new Error(`the listener closed without an answer to CONNECT ${target}`));
    const onData = (chunk: Buffer) => {
      parts.push(chunk);
      const all = Buffer.concat(parts);
      const end = all.indexOf("\r\n\r\n");
      if (end < 0 && all.length < HEADER_LIMIT) return;
      socket.off("data", onData).off("error", onError).off("end", onClose).off("close", onClose);
      socket.pause();
      try {
        const head = Buffer.from(all.subarray(end + 4));
        if (head.length > 0) socket.unshift(head);
        resolve(
          new Connection(
            parseAnswer(all.subarray(0, end).toString("latin1")),
            head,
            socket,
            performance.now() - started,
          ),
        );
      } catch (error) {
        socket.destroy();
        reject(error);
      }
    };
    socket.on("data", onData).on("error", onError).on("end", onClose).on("close", onClose);
  });
  socket.on("error", () => {}); // after the answer, errors are seen by whoever reads
  const text = request ?? `CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`;
  socket.write(Buffer.concat([Buffer.from(text, "latin1"), Buffer.from(early)]));
  return within(answered, deadlineMs, `an answer to CONNECT ${target}`).catch((error) => {
    socket.destroy();
    throw error;
  });
}

/** The connection, which must have been answered with 200. */
export async function established(connecting: Promise<Connection>): Promise<Connection> {
  const connection = await connecting;
  assert.equal(connection.status, 200, connection.reason);
  return connection;
}

/** Whether a CONNECT is answered with 200; its connection is ended at once. */
export async function isAnswered(listener: CallerListener, target: string): Promise<boolean> {
  await using connection = await connectThrough(listener, target);
  return connection.status === 200;
}

/** A raw connection to a listener, over TLS where it has some; half-open allowed. */
export function dialListener(listener: CallerListener): Socket {
  if ("path" in listener) return connectTcp({ path: listener.path, allowHalfOpen: true });
  const { host, port, tls } = listener;
  if (!tls) return connectTcp({ host, port, allowHalfOpen: true, noDelay: true });
  const raw = connectTcp({ host, port, allowHalfOpen: true, noDelay: true });
  raw.on("error", () => {}); // the TLS socket reports it
  const socket = connectTls({ socket: raw, host, servername: "localhost", ...tls });
  socket.allowHalfOpen = true;
  return socket;
}

interface Answer {
  readonly status: number;
  readonly reason: string;
  readonly headers: ReadonlyMap<string, string>;
}

/** Status line and fields (RFC 9112 §4, §5); throws on anything else. */
export function parseAnswer(text: string): Answer {
  const [first = "", ...lines] = text.split("\r\n");
  const match = /^HTTP\/1\.[01] (\d{3}) ?(.*)$/.exec(first);
  if (!match) throw new Error(`not an HTTP answer: ${JSON.stringify(first.slice(0, 200))}`);
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon <= 0) throw new Error(`not a header field: ${JSON.stringify(line.slice(0, 200))}`);
    headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  return { status: Number(match[1]), reason: match[2] ?? "", headers };
}
