import type { Socket } from "node:net";
import { type AnswerHead, AnswerReader, keepsConnection } from "./connect-answer.ts";
import { AnswerBody } from "./connect-answer-body.ts";

/** How an exchange can end without an answer. */
export interface Unanswered {
  readonly head: undefined;
  /** Not a byte had come: the proxy may have closed before it saw the request. */
  readonly silent: boolean;
  /** The socket's own reason, if it has one. */
  readonly error: Error | undefined;
}

/** The body of a refusal may take this long: what counts is the status. */
const BODY_MS = 1_000;
/** A page that is shown, and one that is passed over to keep the connection: larger ones cost more than a new connection. */
const MAX_BODY_BYTES = { shown: 1_024, passedOver: 64 * 1024 };

/** One connection to a proxy, for one request after another. It reads no byte that is the tunnel's. */
export class ProxyConnection {
  readonly #socket: Socket;
  #asked = 0;

  /** The socket has an error listener. */
  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** More than one request was made here: the proxy may have had enough of it meanwhile. */
  get wasKept(): boolean {
    return this.#asked > 1;
  }

  /** Throws `UnreadableAnswer`. */
  async ask(request: string): Promise<{ readonly head: AnswerHead } | Unanswered> {
    this.#asked++;
    const reader = new AnswerReader();
    // One byte to a character, as the proxy's own words were read that are said to it again.
    this.#socket.write(request, "latin1");
    const { found, error } = await readUntil(this.#socket, (chunk) => {
      const answer = reader.push(chunk);
      return answer === undefined ? undefined : { found: answer.head, rest: answer.rest };
    });
    return found === undefined ? { head: undefined, silent: reader.isEmpty, error } : { head: found };
  }

  /** The beginning of what the proxy says for a person. Afterwards the connection is good for nothing else. */
  async readPage(head: AnswerHead): Promise<string> {
    const body = new AnswerBody(head, MAX_BODY_BYTES.shown);
    await this.#read(body);
    return body.text;
  }

  /** Makes the connection ready for another request; `false`: it takes none. */
  async passOver(head: AnswerHead): Promise<boolean> {
    const body = new AnswerBody(head, MAX_BODY_BYTES.passedOver);
    if (!keepsConnection(head) || body.endsWithConnection) return false;
    await this.#read(body);
    // What already stands behind the body cannot be an answer to what was not asked yet.
    return body.isComplete && this.#socket.readableLength === 0 && !this.#socket.destroyed;
  }

  /** As the tunnel: paused, with what came behind the answer in front of what it will deliver. */
  release(): Socket {
    return this.#socket;
  }

  async #read(body: AnswerBody): Promise<void> {
    if (body.isOver) return;
    const timer = setTimeout(() => this.#socket.destroy(), BODY_MS);
    await readUntil(this.#socket, (chunk) => {
      const rest = body.push(chunk);
      return rest === undefined ? undefined : { found: true, rest };
    });
    clearTimeout(timer);
  }
}

/**
 * Gives a socket's chunks to `take` until that has what it wants, and the rest back to the socket, which is paused. In one
 * turn of the loop: an end that waits behind the rest would come first otherwise, and nothing goes in front of an end.
 */
function readUntil<T>(
  socket: Socket,
  take: (chunk: Buffer) => { readonly found: T; readonly rest: Buffer } | undefined,
): Promise<{ readonly found?: T; readonly error?: Error | undefined }> {
  return new Promise((resolve, reject) => {
    let failure: Error | undefined;
    if (socket.destroyed || socket.readableEnded) {
      resolve({});
      return;
    }
    socket.on("data", onData);
    socket.on("error", onError);
    socket.on("end", onEnd);
    socket.on("close", onEnd);
    socket.resume();

    function onData(chunk: Buffer): void {
      try {
        const taken = take(chunk);
        if (taken === undefined) return;
        release();
        if (taken.rest.length > 0) socket.unshift(taken.rest);
        resolve({ found: taken.found });
      } catch (error) {
        release();
        reject(error);
      }
    }

    function onError(error: Error): void {
      failure = error;
    }

    function onEnd(): void {
      release();
      resolve({ error: failure });
    }

    function release(): void {
      socket.pause();
      socket.off("data", onData);
      socket.off("error", onError);
      socket.off("end", onEnd);
      socket.off("close", onEnd);
    }
  });
}
