import type { IncomingMessage } from "node:http";
import net from "node:net";
import tls from "node:tls";
import { WebSocket } from "ws";
import { sniOf } from "../address/server-name.ts";
import { seconds } from "../basics/text.ts";
import { ConnectAborted, connectTcp } from "../net/connect-tcp.ts";
import { trustIn } from "../tls/authorities.ts";
import { certificateFault, shownBy } from "../tls/server-certificate.ts";
import { HANDSHAKE_VERSION, LINK_HEADER, SUBPROTOCOL } from "../wire/handshake.ts";
import { Carrier, WEBSOCKET_BOUNDS } from "./carrier.ts";
import type { ControlMessage, Hello, OuterHello, ResumeAnswer, Welcome } from "./control.ts";
import {
  CONNECTING,
  type DialProgress,
  damagedAnswer,
  dialFault,
  GREETING,
  mendAnswer,
  type PassedProxy,
  readAnswer,
  SECURING,
  timeoutFault,
  UPGRADING,
  unwelcomed,
} from "./dial-faults.ts";

/** How to reach a server. */
export interface CarrierDialOptions {
  /** The server's name, for SNI, verification and the Host header. */
  readonly host: string;
  readonly port: number;
  /** The address to connect to, if it is not that of `host`. */
  readonly address?: { readonly host: string; readonly port: number } | undefined;
  /** Opens the connection below TLS, for example through a proxy. It rejects soon after an abort. Absent: TCP. */
  readonly open?: ((signal: AbortSignal) => Promise<Passage>) | undefined;
  readonly path: string;
  /** `checkServerIdentity`: in place of the comparison of the name with the certificate. */
  readonly tls: Pick<tls.ConnectionOptions, "cert" | "key" | "minVersion" | "ciphers" | "checkServerIdentity"> & {
    readonly ca?: string | readonly string[] | undefined;
  };
  /** The configured CAs, for the message about a certificate that none of them has issued. */
  readonly trust?: DialTrust;
  readonly headers?: Readonly<Record<string, string>>;
  /** The open link that this connection is for: another server than its own can carry the connection there. */
  readonly link?: string | undefined;
  readonly keepaliveMs: number;
  /** Time for all steps together, ms. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly watch?: DialWatcher;
}

interface DialTrust {
  /** Content of `--ca-cert`. */
  readonly ca?: string | undefined;
  /** Content of `--outer-ca`; absent: no middlebox is expected to open TLS on the path. */
  readonly outerCa?: readonly string[] | undefined;
}

/** A connection below TLS. */
export interface Passage {
  readonly socket: net.Socket;
  /** The proxy that it goes through, if any. */
  readonly proxy?: PassedProxy | undefined;
}

/** Events of a dial. */
export interface DialWatcher {
  /** The TLS handshake is done, and the server's certificate is valid. */
  onSecure?(socket: tls.TLSSocket): void;
  /** The upgrade was answered, whatever the answer is. */
  onAnswer?(answer: IncomingMessage): void;
  /** A ping on the new carrier was answered after this time, ms. */
  onEcho?(ms: number): void;
}

export interface DialOptions extends CarrierDialOptions {
  /**
   * Called when the hello is sent, because a resume names what has been received by then. `proxy`: the one that the
   * connection goes through.
   */
  readonly hello: (proxy: string | undefined) => Hello | OuterHello;
}

/** A carrier on which the agent has sent its hello. */
interface DialledOuter {
  readonly carrier: Carrier;
  /** The address that was reached. */
  readonly remote: string;
  /** The proxy that it goes through, without credentials. */
  readonly proxy?: string | undefined;
}

/** A carrier that the server has welcomed. */
export interface Dialled extends DialledOuter {
  readonly welcome: Welcome;
}

/** A carrier on which a resume was answered. `LinkKey` tells whether it was the server. */
export interface DialledAgain extends DialledOuter {
  readonly resumed: ResumeAnswer;
}

/**
 * The agent's side of the handshake: TCP → TLS → upgrade → hello → welcome.
 *
 * Rejects with `LinkRefused` when the server refused, with a `DialFault` when a middlebox answered for it, else with an
 * error of the network whose message names the step.
 */
export async function dialCarrier(options: DialOptions): Promise<Dialled> {
  const { answer, ...reached } = await dial(options, (attempt, socket) => attempt.upgrade(socket, options, "welcome"));
  return { ...reached, welcome: answer as Welcome };
}

/** Dials another carrier for a link. Rejects as `dialCarrier` does. */
export async function dialAgain(options: DialOptions): Promise<DialledAgain> {
  const { answer, ...reached } = await dial(options, (attempt, socket) => attempt.upgrade(socket, options, "resumed"));
  return { ...reached, resumed: answer as ResumeAnswer };
}

/** The hello that asks for inner TLS and says nothing else. */
export const OUTER_HELLO = { type: "hello", version: HANDSHAKE_VERSION, inner: true } as const satisfies OuterHello;

/** Dials a carrier for inner TLS: no answer is expected outside of it. Rejects as `dialCarrier` does. */
export async function dialOuter(options: CarrierDialOptions): Promise<DialledOuter> {
  const wanted = { ...options, hello: () => OUTER_HELLO };
  const { answer: _, ...reached } = await dial(wanted, (attempt, socket) => attempt.upgrade(socket, wanted));
  return reached;
}

/** Verifies that the server is there, with a certificate of the `ca` of these options. Sends nothing but its name. */
export async function probeServer(options: CarrierDialOptions): Promise<void> {
  await dial(options, (attempt) => attempt.abandon());
}

/** Connects, does the TLS handshake, and then what is wanted. */
async function dial<T>(
  options: CarrierDialOptions,
  then: (attempt: DialAttempt, socket: tls.TLSSocket) => T | Promise<T>,
): Promise<T> {
  const attempt = new DialAttempt(options);
  try {
    return await then(attempt, await attempt.secure(await attempt.open()));
  } catch (error) {
    attempt.abandon();
    throw attempt.explain(error as Error);
  } finally {
    attempt.stopWaiting();
  }
}

/** A carrier on which the hello was sent, and the answer that was expected. */
interface Greeted extends DialledOuter {
  readonly answer: ControlMessage | undefined;
}

/** One attempt to reach a server. Each step races the deadline and the caller's signal. */
class DialAttempt {
  readonly #options: CarrierDialOptions;
  readonly #timer: NodeJS.Timeout;
  /** Interrupts the step under way. */
  readonly #abort = new AbortController();
  /** An error that is a sentence already: of the deadline, the caller's signal, or `CarrierDialOptions.open`. */
  #reason: Error | undefined;
  #progress: DialProgress;
  #raw: net.Socket | undefined;

  constructor(options: CarrierDialOptions) {
    this.#options = options;
    this.#progress = { step: CONNECTING, host: options.host, proxy: undefined };
    this.#timer = setTimeout(() => {
      const sentence = `no tunnel within ${seconds(options.timeoutMs)}: timed out ${this.#progress.step}`;
      this.#interrupt(timeoutFault(this.#progress, sentence));
    }, options.timeoutMs);
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (options.signal?.aborted) this.#onAbort();
  }

  readonly #onAbort = (): void => this.#interrupt(new Error("the attempt was cancelled"));

  #interrupt(reason: Error): void {
    this.#reason = reason;
    this.#abort.abort(reason);
  }

  /** The attempt is over. */
  stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
  }

  abandon(): void {
    this.#raw?.destroy();
  }

  async open(): Promise<net.Socket> {
    const { host, port, address, open } = this.#options;
    if (open !== undefined) return await this.#openBy(open);
    const to = address ?? { host, port };
    try {
      this.#raw = await connectTcp(to, this.#abort.signal);
    } catch (error) {
      const causes = error instanceof ConnectAborted ? error.causes : "";
      const isCancelled = this.#options.signal?.aborted;
      if (this.#reason !== undefined && !isCancelled && causes !== "") this.#reason.message += ` (${causes})`;
      throw this.#reason ?? error;
    }
    return this.#raw;
  }

  /** Prefers the error of `open`, which names the step that was interrupted. */
  async #openBy(open: NonNullable<CarrierDialOptions["open"]>): Promise<net.Socket> {
    const { signal } = this.#abort;
    try {
      const { socket, proxy } = await open(signal);
      this.#raw = socket.on("error", () => {});
      this.#progress = { ...this.#progress, proxy };
      if (!signal.aborted) return socket;
    } catch (error) {
      if (!this.#options.signal?.aborted) this.#reason = error as Error;
    }
    throw this.#reason;
  }

  secure(raw: net.Socket): Promise<tls.TLSSocket> {
    const { host, trust = {} } = this.#options;
    const { ca, ...own } = this.#options.tls;
    this.#progress = { ...this.#progress, step: SECURING };
    const isMiddleboxLikely = trust.outerCa !== undefined || this.#progress.proxy !== undefined;
    return this.#race((resolve, reject) => {
      raw.on("error", reject);
      const socket = tls.connect({
        ...own,
        ...trustIn(ca),
        socket: raw,
        host,
        // Explicit, because mask keys of zero depend on it and NODE_TLS_REJECT_UNAUTHORIZED=0 would change the default.
        rejectUnauthorized: true,
        ...sniOf(host),
        ALPNProtocols: ["http/1.1"],
      });
      const shown = shownBy(socket);
      socket.on("error", (error) => {
        reject(certificateFault(error, shown(), { host, ca: trust.ca, isMiddleboxLikely }) ?? error);
      });
      socket.once("secureConnect", () => {
        this.#progress = { ...this.#progress, noProtocol: !socket.alpnProtocol };
        this.#options.watch?.onSecure?.(socket);
        resolve(socket);
      });
      // Node reports most closed connections itself.
      socket.once("close", () => reject(Object.assign(new Error("closed"), { code: "ECONNRESET" })));
    });
  }

  /**
   * Upgrades and sends the hello in the same turn, because the carrier has to read the socket from its first frame on.
   * `expects`: the type of the answer to the hello. Without one inner TLS comes next.
   */
  upgrade(socket: tls.TLSSocket, { hello }: DialOptions, expects?: "welcome" | "resumed"): Promise<Greeted> {
    const { host, port, path, link, keepaliveMs, watch } = this.#options;
    const headers = { ...this.#options.headers, ...linkHeader(link) };
    this.#progress = { ...this.#progress, step: UPGRADING };
    return this.#race((resolve, reject) => {
      const authority = net.isIPv6(host) ? `[${host}]` : host;
      const ws = new WebSocket(`wss://${authority}:${port}${path}`, [SUBPROTOCOL], {
        createConnection: () => socket,
        perMessageDeflate: false,
        ...WEBSOCKET_BOUNDS,
        headers,
      });
      let isAnswered = false;
      // After the answer, an error without a code of the network means that ws has refused the answer.
      ws.on("error", (error: NodeJS.ErrnoException) => {
        const isOfWs = error.code === undefined || error.code.startsWith("WS_ERR_");
        reject(isAnswered && isOfWs ? damagedAnswer(error) : error);
      });
      ws.once("upgrade", (response) => {
        isAnswered = true;
        watch?.onAnswer?.(response);
        mendAnswer(response);
      });
      ws.on("unexpected-response", (_request, response) => {
        watch?.onAnswer?.(response);
        readAnswer(response, secretsIn(headers), reject);
      });
      ws.once("open", () => {
        const remote = `${socket.remoteAddress}:${socket.remotePort}`;
        const carrier = new Carrier(ws, socket, { role: "client", keepaliveMs, onEcho: watch?.onEcho });
        this.#progress = { ...this.#progress, step: GREETING };
        const proxy = this.#progress.proxy?.at;
        const message = hello(proxy);
        if (expects === undefined) resolve({ carrier, remote, proxy, answer: undefined });
        else this.#onAnswer(carrier, expects, (answer) => resolve({ carrier, remote, proxy, answer }), reject);
        carrier.sendControl(message);
      });
    });
  }

  #onAnswer(
    carrier: Carrier,
    expects: "welcome" | "resumed",
    resolve: (answer: ControlMessage) => void,
    reject: (error: Error) => void,
  ): void {
    carrier.onEnded = (reason = new Error("the server closed before its welcome")) => reject(unwelcomed(reason));
    carrier.onControl = (message) => {
      carrier.onEnded = undefined;
      carrier.onControl = undefined;
      if (message.type !== expects) {
        reject(new Error(`the server answered hello with ${message.type}`));
        return;
      }
      const { keepaliveMs } = this.#options;
      if ("keepaliveMs" in message) carrier.setKeepalive(Math.min(keepaliveMs, message.keepaliveMs));
      resolve(message);
    };
  }

  /** Turns an error of the network into a sentence. */
  explain(error: Error): Error {
    return error === this.#reason ? error : dialFault(error, this.#progress);
  }

  #race<T>(step: (resolve: (value: T) => void, reject: (error: Error) => void) => void): Promise<T> {
    const { signal } = this.#abort;
    return new Promise((resolve, reject) => {
      signal.onabort = () => reject(signal.reason); // in place of the step before
      if (signal.aborted) reject(signal.reason);
      step(resolve, reject);
    });
  }
}

/** A link id that is invalid in a header is not sent; other servers then cannot carry the resume. */
function linkHeader(link: string | undefined): Record<string, string> {
  return link !== undefined && /^[!-~]+$/.test(link) ? { [LINK_HEADER]: link } : {};
}

/** The secrets in a request, without the scheme before them. */
function secretsIn(headers: Readonly<Record<string, string>>): string[] {
  return Object.entries(headers)
    .filter(([name]) => name.toLowerCase() === "authorization")
    .map(([, value]) => value.replace(/^\S+ +/, ""));
}
