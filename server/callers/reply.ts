import type { Duplex } from "node:stream";
import { ByteQueue } from "../../shared/basics/bytes.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { answerAndEnd } from "../../shared/http/connection.ts";
import { type ProxyStatus, proxyStatus } from "../../shared/http/response-fields.ts";
import { HeldBytes, type MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError, outcome, printable } from "../../shared/outcomes.ts";

// A caller until it has its answer, and every answer of the callers' side, which is written on the raw socket.

/** Bytes that a caller may send before the 200; more stays unread until the target is connected. */
const MAX_EARLY_BYTES = 64 * 1024;

/** kube-apiserver expects exactly this: 200 and no headers. */
const ESTABLISHED = Buffer.from("HTTP/1.1 200 Connection Established\r\n\r\n", "latin1");

const MEMORY_NEEDED = "memory is short, and bytes that came before the answer held some: try again";

function ignore(): void {}

/**
 * A caller between its CONNECT and the first byte of its tunnel.
 *
 * Only reading shows that a caller has left. So its socket is read from the start: bytes that come early are kept for
 * the target, and an end means that the caller has gone. Node cannot tell a half-close from a close, and before the 200
 * no caller half-closes.
 */
export class PendingCaller {
  readonly #socket: Duplex;
  /** Cancelled when the caller has left, or its CONNECT is refused. */
  readonly cancellation = new Cancellation<CulvertError>();
  readonly #early = new ByteQueue();
  readonly #held: HeldBytes;
  #earlyBytes = 0;
  #established = false;
  /** Present after the 200, while the target's bytes wait. */
  #onSpoken: (() => void) | undefined;

  /** `memory`: the account of unauthenticated peers, until the caller is admitted. */
  constructor(socket: Duplex, memory: Pick<MemoryAccount, "hold" | "enter">) {
    this.#socket = socket;
    this.#held = new HeldBytes(memory, () => {
      this.cancellation.cancel(new CulvertError("overloaded", MEMORY_NEEDED));
      this.#forget(); // at once, since others wait for this memory, and not when the refusal is written
    });
    socket.on("error", ignore); // it stays for the connection's whole life
    socket.on("readable", this.#onReadable);
    socket.on("end", this.#onEnd);
    socket.on("close", this.#onEnd);
  }

  /** From now on the account of the caller's cluster is charged for what the caller sends. */
  chargeTo(memory: Pick<MemoryAccount, "hold" | "enter">): void {
    this.#held.moveTo(memory);
  }

  /**
   * Sends the bytes that came after the CONNECT to the target, answers 200, and resolves with their number when the
   * target's bytes may follow: after `gapMs`, or as soon as the caller sends something. Without a gap they follow at
   * once, in a TLS record of their own. That the answer is written is not waited for: if the caller has gone, it may
   * never be (`endedByReset`).
   */
  async establish(target: Duplex, gapMs: number): Promise<number> {
    this.#established = true;
    for (let piece = this.#early.take(); piece !== undefined; piece = this.#early.take()) target.write(piece);
    this.#forget();
    if (gapMs === 0) this.#socket.write(ESTABLISHED);
    else await this.#establishWithGap(gapMs);
    this.release();
    return this.#earlyBytes;
  }

  #establishWithGap(gapMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.write(ESTABLISHED, () => {
        if (this.#socket.destroyed) return resolve();
        // Bytes of a caller that did not wait for the 200 do not show that the caller has read it.
        if (this.#earlyBytes === 0) {
          if (this.#socket.readableLength > 0 || this.#socket.readableEnded) return resolve();
          this.#onSpoken = () => {
            clearTimeout(timer);
            resolve();
          };
        }
        const timer = setTimeout(resolve, gapMs);
      });
    });
  }

  /** Removes its listeners from the socket. */
  release(): void {
    this.#socket.off("readable", this.#onReadable);
    this.#socket.off("end", this.#onEnd);
    this.#socket.off("close", this.#onEnd);
    this.#onSpoken = undefined;
    this.#forget();
  }

  #keep(chunk: Buffer): void {
    this.#early.add(chunk);
    this.#earlyBytes += chunk.length;
    this.#held.add(chunk.length);
  }

  #forget(): void {
    this.#early.clear();
    this.#held.clear();
  }

  readonly #onReadable = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    while (this.cancellation.reason === undefined && this.#earlyBytes < MAX_EARLY_BYTES) {
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) return;
      this.#keep(chunk);
    }
  };

  readonly #onEnd = (): void => {
    if (this.#established) {
      this.#onSpoken?.();
      return;
    }
    this.cancellation.cancel(new CulvertError("caller_gone", "the caller left before the answer"));
  };
}

// ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const ONLY_CONNECT =
  "only CONNECT is served here: this is the port of culvert's callers, agents connect to --agent-port";

const NO_WHOLE_URL =
  "only CONNECT is served here, and this request asks for a whole URL, as of a web proxy; curl: add --proxytunnel";

/** Requests that are not read as a CONNECT of one caller: they never become a connection with an outcome. */
const HTTP_REFUSALS = {
  method: { status: 405, sentence: ONLY_CONNECT, header: onlyConnect(ONLY_CONNECT) },
  wholeUrl: { status: 405, sentence: NO_WHOLE_URL, header: onlyConnect(NO_WHOLE_URL) },
  malformed: { status: 400, sentence: "the request is not valid HTTP/1", header: "" },
  grpc: {
    status: 505,
    sentence:
      "the caller speaks gRPC (HTTP/2), and culvert takes HTTP CONNECT: in kube-apiserver's --egress-selector-config-file write proxyProtocol: HTTPConnect, and restart it",
    header: "",
  },
  // RFC 9112 §3.2.
  twoHosts: { status: 400, sentence: "the request has two Host lines: send one", header: "" },
  twoCredentials: { status: 400, sentence: "the request has two Proxy-Authorization lines: send one", header: "" },
  headerTooLarge: { status: 431, sentence: "the request header is too large", header: "" },
  headerTimeout: { status: 408, sentence: "the request header did not arrive in time", header: "" },
} as const;
export type CallerHttpRefusal = keyof typeof HTTP_REFUSALS;

/**
 * Answers a CONNECT with its outcome, or closes the socket if the caller has gone. `challenges`: the credentials that a
 * 407 asks for (RFC 9110 §15.5.8).
 */
export function refuseConnect(socket: Duplex, error: CulvertError, challenges: readonly string[]): void {
  const { http: status, proxyStatus: type } = outcome(error.code);
  if (status === undefined) {
    socket.destroy();
    return;
  }
  const asked = status === 407 ? challenges.map((challenge) => `Proxy-Authenticate: ${challenge}\r\n`).join("") : "";
  const { retryAfterMs } = error;
  const retryAfter = retryAfterMs === undefined ? "" : `Retry-After: ${Math.ceil(retryAfterMs / 1_000)}\r\n`;
  send(
    socket,
    status,
    error.message,
    `${asked}${retryAfter}${marked({ error: type, fault: error.fault, refusedBy: error.refusedBy }, error.message)}`,
  );
}

export function sentenceOf(refusal: CallerHttpRefusal): string {
  return HTTP_REFUSALS[refusal].sentence;
}

/** Answers a request that is no CONNECT. */
export function refuseRequest(socket: Duplex, refusal: CallerHttpRefusal): void {
  const { status, sentence, header } = HTTP_REFUSALS[refusal];
  send(socket, status, sentence, header);
}

/** With Proxy-Status, since a proxy on an agent's path that accepts CONNECT alone gives a similar answer. */
function onlyConnect(sentence: string): string {
  return `Allow: CONNECT\r\n${marked({ error: "http_request_error" }, sentence)}`;
}

function marked(status: ProxyStatus, sentence: string): string {
  return `Proxy-Status: ${proxyStatus(status, sentence)}\r\n`;
}

/** The sentence is in the status line, since kubectl shows its user nothing else. */
function send(socket: Duplex, status: number, sentence: string, headers: string): void {
  const reason = printable(sentence);
  const body = `${reason}\n`;
  answerAndEnd(
    socket,
    `HTTP/1.1 ${status} ${reason}\r\n${headers}Connection: close\r\nContent-Type: text/plain\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  );
}
