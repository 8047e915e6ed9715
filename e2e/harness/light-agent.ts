import { randomBytes, randomUUID } from "node:crypto";
import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls, type SecureContext, type TLSSocket } from "node:tls";
import { backoffMs } from "../../shared/basics/backoff.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { HANDSHAKE_VERSION, SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";

interface LightAgentOptions {
  readonly port: number;
  /** Authority, certificate and key: one for all agents, since making it costs more than a handshake. */
  readonly secureContext: SecureContext;
  readonly agentId: string;
  /** The name that it asks for. */
  readonly servername?: string;
  /** The address that it comes from, on loopback. */
  readonly localAddress?: string;
  /** From the dial to the welcome, as in the product. */
  readonly attemptMs?: number;
  /** It dials, for the first time or again. */
  readonly onDial?: (agent: LightAgent) => void;
  /** It has its welcome. */
  readonly onConnected?: (agent: LightAgent) => void;
  /** Its connection ended after the welcome. */
  readonly onLost?: (agent: LightAgent) => void;
  /** The attempt came to nothing; `retryAfterS`: the server said when to come back. */
  readonly onFailed?: (agent: LightAgent, retryAfterS: number | undefined) => void;
}

const ATTEMPT_MS = 10_000;
const END_OF_HEADER = "\r\n\r\n";

/** RFC 6455 §5.2. */
const Opcode = { text: 0x1, binary: 0x2, close: 0x8 } as const;

/** The facts of a link that a resume needs. */
interface HeldLink {
  readonly link: string;
  readonly key: LinkKey;
  /** Payload that has arrived. */
  received: number;
}

/**
 * As little of an agent as holds a tunnel, so that thousands fit in one process: TLS, upgrade, hello, and an answer to
 * each ping. It carries no streams. Lost, it comes back by the product's own backoff and resumes its link.
 */
export class LightAgent {
  readonly #options: LightAgentOptions;
  readonly #instance = randomUUID();
  #failures = 0;
  #raw: Socket | undefined;
  #timer: NodeJS.Timeout | undefined;
  #link: HeldLink | undefined;
  #connected = false;
  #stopped = false;

  constructor(options: LightAgentOptions) {
    this.#options = options;
  }

  get agentId(): string {
    return this.#options.agentId;
  }

  get connected(): boolean {
    return this.#connected;
  }

  dial(): void {
    const { port, secureContext, servername, localAddress, attemptMs = ATTEMPT_MS, onDial } = this.#options;
    onDial?.(this);
    const raw = connectTcp({ host: "127.0.0.1", port, noDelay: true, ...(localAddress && { localAddress }) }).on(
      "error",
      ignore,
    );
    const socket = connectTls({
      socket: raw,
      secureContext,
      rejectUnauthorized: false,
      ...(servername && { servername }),
    });
    this.#raw = raw;
    // From the connection on: in a process of thousands, the dial itself may wait for all the others.
    raw.once("connect", () => {
      this.#timer = setTimeout(() => raw.destroy(), attemptMs);
    });
    const attempt = new Attempt(socket, { agentId: this.#options.agentId, instance: this.#instance }, this.#link);
    attempt.onWelcome = (link) => {
      clearTimeout(this.#timer);
      this.#link = link;
      this.#connected = true;
      this.#options.onConnected?.(this);
    };
    raw.on("close", () => this.#ended(attempt));
  }

  /** The path is gone, without a word to the server but a reset. */
  cut(): void {
    this.#raw?.resetAndDestroy();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#raw?.destroy();
  }

  #ended({ retryAfterS, closed }: Attempt): void {
    clearTimeout(this.#timer);
    if (closed) this.#link = undefined; // the server has given it up
    if (this.#stopped) return;
    if (this.#connected) {
      this.#failures = 0;
      this.#options.onLost?.(this);
    } else this.#options.onFailed?.(this, retryAfterS);
    this.#connected = false;
    this.#timer = setTimeout(() => this.dial(), backoffMs(this.#failures++, (retryAfterS ?? 0) * 1000));
  }
}

interface Frame {
  readonly opcode: number;
  readonly body: Buffer;
}

/** One connection of a light agent: what it says, and what it makes of the answers. */
class Attempt {
  onWelcome: (link: HeldLink) => void = ignore;
  /** The Retry-After of a refusal, seconds. */
  retryAfterS: number | undefined;
  /** The server has ended it with a word. */
  closed = false;
  readonly #socket: TLSSocket;
  readonly #hello: string;
  #link: HeldLink | undefined;
  #received: Buffer = Buffer.alloc(0);
  #upgraded = false;

  constructor(socket: TLSSocket, who: { agentId: string; instance: string }, held: HeldLink | undefined) {
    this.#socket = socket;
    const resume = held?.key.prove(held);
    this.#hello = JSON.stringify({ type: "hello", version: HANDSHAKE_VERSION, ...who, software: "light", resume });
    this.#link = held;
    socket.on("error", ignore);
    socket.on("data", this.#onData);
    socket.write(
      `GET ${TUNNEL_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString("base64")}\r\n` +
        `Sec-WebSocket-Protocol: ${SUBPROTOCOL}\r\n\r\n`,
    );
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    if (!this.#upgraded && !this.#takeAnswer()) return;
    for (let frame = this.#takeFrame(); frame !== undefined; frame = this.#takeFrame()) this.#onFrame(frame);
  };

  #takeAnswer(): boolean {
    const end = this.#received.indexOf(END_OF_HEADER);
    if (end < 0) return false;
    const header = this.#received.toString("latin1", 0, end);
    this.#received = this.#received.subarray(end + END_OF_HEADER.length);
    if (header.startsWith("HTTP/1.1 101")) {
      this.#upgraded = true;
      this.#sendText(this.#hello);
      return true;
    }
    const asked = /^retry-after: (\d+)$/im.exec(header)?.[1];
    this.retryAfterS = asked === undefined ? undefined : Number(asked);
    this.#socket.destroy();
    return false;
  }

  #onFrame({ opcode, body }: Frame): void {
    if (opcode === Opcode.binary && this.#link !== undefined) this.#link.received += body.length;
    if (opcode === Opcode.close) this.closed = true;
    if (opcode !== Opcode.text) return;
    const message = JSON.parse(body.toString("utf8"));
    if (message.type === "ping") this.#answerPing();
    if (message.type === "welcome") {
      this.#link = { link: message.link, key: LinkKey.parse(message.key), received: 0 };
    } else if (message.type !== "resumed") return;
    if (this.#link !== undefined) this.onWelcome(this.#link);
  }

  /** Bytes that have come are acknowledged with it: a peer that never acknowledges counts as one that reads nothing. */
  #answerPing(): void {
    this.#sendText('{"type":"pong"}');
    if (this.#link !== undefined) this.#sendText(JSON.stringify({ type: "ack", received: this.#link.received }));
  }

  /** A server's frames are never masked; these are never longer than 64 KiB. */
  #takeFrame(): Frame | undefined {
    const buffer = this.#received;
    if (buffer.length < 2) return undefined;
    const opcode = buffer.readUInt8(0) & 0x0f;
    const short = buffer.readUInt8(1) & 0x7f;
    const head = short === 126 ? 4 : 2;
    if (buffer.length < head) return undefined;
    const end = head + (short === 126 ? buffer.readUInt16BE(2) : short);
    if (buffer.length < end) return undefined;
    this.#received = buffer.subarray(end);
    return { opcode, body: buffer.subarray(head, end) };
  }

  /** With a mask of zeros: inside TLS nothing in between can be confused by it. */
  #sendText(text: string): void {
    const body = Buffer.from(text);
    const long = body.length > 125;
    const head = Buffer.alloc(long ? 8 : 6);
    head[0] = 0x80 | Opcode.text;
    head[1] = 0x80 | (long ? 126 : body.length);
    if (long) head.writeUInt16BE(body.length, 2);
    this.#socket.write(Buffer.concat([head, body]));
  }
}

function ignore(): void {}
