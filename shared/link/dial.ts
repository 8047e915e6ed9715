import type { IncomingMessage } from "node:http";
import net from "node:net";
import tls from "node:tls";
import { WebSocket } from "ws";
import { sniOf } from "../address/server-name.ts";
import { deferred } from "../basics/promises.ts";
import { seconds } from "../basics/text.ts";
import { beforeVerification } from "../node/sockets.ts";
import { certificateFault, shownBy } from "../tls/server-certificate.ts";
import { HANDSHAKE_VERSION, LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";
import { Carrier, WEBSOCKET_BOUNDS } from "./carrier.ts";
import type { ControlMessage, Hello, OuterHello, ResumeAnswer, Welcome } from "./control.ts";
import {
  CONNECTING,
  type DialStep,
  dialFault,
  GREETING,
  type PassedProxy,
  SECURING,
  tooLate,
  UPGRADING,
  unwelcomed,
} from "./dial-fault.ts";
import { damagedAnswer, mendAnswer, readAnswer } from "./upgrade-answer.ts";

/** Where to, and how: all but the words. */
export interface CarrierDialOptions {
  /** The server's name, for SNI, verification and the Host header. */
  readonly host: string;
  readonly port: number;
  /** Where to connect instead, the name staying as it is. */
  readonly address?: { readonly host: string; readonly port: number } | undefined;
  /**
   * Opens the connection that TLS goes over, through a proxy for example; an abort makes it reject soon. Absent: TCP to `address`,
   * or to host and port.
   */
  readonly open?: ((signal: AbortSignal) => Promise<Passage>) | undefined;
  readonly path: string;
  readonly tls: Pick<tls.ConnectionOptions, "ca" | "cert" | "key" | "minVersion" | "ciphers">;
  /** What the options say of authorities, for the words where a certificate is of none of them. */
  readonly trust?: DialTrust;
  readonly headers?: Readonly<Record<string, string>>;
  readonly keepaliveMs: number;
  /** For all steps together, ms. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly watch?: DialWatcher;
}

export interface DialTrust {
  /** Content of `--ca-cert`. */
  readonly ca?: string | undefined;
  /** Of `--outer-ca`; absent: nobody is expected to open TLS on the path. */
  readonly outerCa?: readonly string[] | undefined;
}

/** A connection for TLS to go over. */
export interface Passage {
  readonly socket: net.Socket;
  /** Absent: it goes through none. */
  readonly proxy?: PassedProxy | undefined;
}

/** Who looks on while a dial goes from step to step. */
export interface DialWatcher {
  /** The TLS handshake is done, and the server's certificate good. */
  onSecure?(socket: tls.TLSSocket): void;
  /** The answer to the upgrade, whatever it says. */
  onAnswer?(answer: IncomingMessage): void;
  /** How long each ping took to be answered on the carrier that was opened, ms. */
  onEcho?(ms: number): void;
}

export interface DialOptions extends CarrierDialOptions {
  /** Called when the hello is sent, because a resume names what has been received by then. */
  readonly hello: () => Hello | OuterHello;
}

/** A carrier on which the agent has sent its hello. */
export interface DialledOuter {
  readonly carrier: Carrier;
  /** The address that was reached. */
  readonly remote: string;
}

/** A carrier that the server has welcomed. */
export interface Dialled extends DialledOuter {
  readonly welcome: Welcome;
}

/** A carrier on which somebody has answered a resume; `LinkKey` tells whether it was the server. */
export interface DialledAgain extends DialledOuter {
  readonly resumed: ResumeAnswer;
}

/**
 * The agent's side of the handshake: TCP → TLS → upgrade → hello → welcome.
 *
 * Rejects with `LinkRefused` when the server said no, with `MiddleBox` when somebody in between answered for it, else with the network's error; the message names the step.
 */
export async function dialCarrier(options: DialOptions): Promise<Dialled> {
  const { answer, ...reached } = await dial(options, { hello: options.hello, expects: "welcome" });
  return { ...reached, welcome: answer as Welcome };
}

/** Dials another carrier for a link. Rejects as `dialCarrier` does. */
export async function dialAgain(options: DialOptions): Promise<DialledAgain> {
  const { answer, ...reached } = await dial(options, { hello: options.hello, expects: "resumed" });
  return { ...reached, resumed: answer as ResumeAnswer };
}

/** Dials a carrier for inner TLS: no answer is expected outside of it. Rejects as `dialCarrier` does. */
export async function dialOuter(options: CarrierDialOptions): Promise<DialledOuter> {
  try {
    const { carrier, remote } = await dial(options, { hello: () => OUTER_HELLO });
    return { carrier, remote };
  } catch (error) {
    throw error instanceof LinkRefused && error.status === 401 ? withoutInner(error) : error;
  }
}

/** The hello that asks for inner TLS and says nothing else. */
export const OUTER_HELLO = { type: "hello", version: HANDSHAKE_VERSION, inner: true } as const satisfies OuterHello;

/** The server misses what is shown inside inner TLS only. */
function withoutInner({ reason, retryAfterMs }: LinkRefused): LinkRefused {
  const cure = "it seems to take no inner TLS (--inner-tls of the server, agents.innerTls of the cluster's document)";
  return new LinkRefused({ status: 401, reason: `${reason}; ${cure}`, retryAfterMs });
}

/** Is the server there, with a certificate that the `ca` of these options knows? Nothing is shown to it but its name. */
export async function probeServer(options: CarrierDialOptions): Promise<void> {
  const attempt = new Attempt(options);
  try {
    await attempt.secure(await attempt.open());
  } catch (error) {
    throw attempt.explain(error as Error);
  } finally {
    attempt.abandon();
    attempt.settle();
  }
}

interface Greeting {
  readonly hello: () => Hello | OuterHello;
  /** Absent: inner TLS comes next. */
  readonly expects?: "welcome" | "resumed";
}

interface Greeted extends DialledOuter {
  readonly answer: ControlMessage | undefined;
}

async function dial(options: CarrierDialOptions, greeting: Greeting): Promise<Greeted> {
  const attempt = new Attempt(options);
  try {
    const socket = await attempt.secure(await attempt.open());
    return await attempt.upgrade(socket, greeting);
  } catch (error) {
    attempt.abandon();
    throw attempt.explain(error as Error);
  } finally {
    attempt.settle();
  }
}

/** One try. Each step races the deadline and the caller's signal, which say at which step it stood. */
class Attempt {
  readonly #options: CarrierDialOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #interrupted = deferred<never>();
  /** Ours, not the network's: the deadline or the owner's signal. */
  #reason: Error | undefined;
  /** Of what opens the connection. */
  readonly #abort = new AbortController();
  #step: DialStep = CONNECTING;
  #raw: net.Socket | undefined;
  #proxy: PassedProxy | undefined;
  #noProtocol: boolean | undefined;

  constructor(options: CarrierDialOptions) {
    this.#options = options;
    this.#interrupted.promise.catch(() => {});
    this.#timer = setTimeout(() => {
      const sentence = `no tunnel within ${seconds(options.timeoutMs)}: timed out ${this.#step}`;
      this.#interrupt(tooLate({ step: this.#step, proxy: this.#proxy }, sentence));
    }, options.timeoutMs);
    options.signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (options.signal?.aborted) this.#onAbort();
  }

  readonly #onAbort = (): void => this.#interrupt(new Error("the attempt was cancelled"));

  #interrupt(reason: Error): void {
    this.#reason = reason;
    this.#interrupted.reject(reason);
    this.#abort.abort(reason);
  }

  settle(): void {
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
  }

  abandon(): void {
    this.#raw?.destroy();
  }

  async open(): Promise<net.Socket> {
    const { host, port, address, open } = this.#options;
    if (open !== undefined) {
      const { socket, proxy } = await this.#openBy(open);
      this.#raw = socket.on("error", ignore);
      this.#proxy = proxy;
      return socket;
    }
    const to = address ?? { host, port };
    const raw = net.connect({ host: to.host, port: to.port, noDelay: true, autoSelectFamily: true });
    this.#raw = raw;
    return this.#race((resolve, reject) => {
      raw.on("error", reject);
      raw.once("connect", () => resolve(raw));
    });
  }

  /** Its errors are sentences; told to stop in the middle, it knows best where it stood. */
  async #openBy(open: NonNullable<CarrierDialOptions["open"]>): Promise<Passage> {
    const opening = open(this.#abort.signal);
    try {
      return await Promise.race([opening, this.#interrupted.promise]);
    } catch (error) {
      this.#reason = await opening.then(
        (late) => {
          late.socket.destroy();
          return error as Error;
        },
        (why: Error) => (this.#options.signal?.aborted ? (error as Error) : why),
      );
      throw this.#reason;
    }
  }

  secure(raw: net.Socket): Promise<tls.TLSSocket> {
    const { host } = this.#options;
    this.#step = SECURING;
    return this.#race((resolve, reject) => {
      raw.on("error", reject);
      const socket = tls.connect({
        ...this.#options.tls,
        socket: raw,
        host,
        // Said aloud, because the zero mask keys rest on it and NODE_TLS_REJECT_UNAUTHORIZED=0 would change the default.
        rejectUnauthorized: true,
        ...sniOf(host),
        ALPNProtocols: ["http/1.1"],
      });
      let shown: readonly Buffer[] = [];
      beforeVerification(socket, () => {
        shown = shownBy(socket);
      });
      socket.on("error", (error) => reject(certificateFault(error, shown, this.#circumstances()) ?? error));
      socket.once("secureConnect", () => {
        this.#noProtocol = !socket.alpnProtocol;
        this.#options.watch?.onSecure?.(socket);
        resolve(socket);
      });
      // What Node says itself in most cases.
      socket.once("close", () => reject(Object.assign(new Error("closed"), { code: "ECONNRESET" })));
    });
  }

  #circumstances() {
    const { host, trust = {} } = this.#options;
    return { host, ca: trust.ca, isBoxLikely: trust.outerCa !== undefined || this.#proxy !== undefined };
  }

  /** The upgrade, and what follows in the same turn: the carrier has to read the socket from its first frame. */
  upgrade(socket: tls.TLSSocket, greeting: Greeting): Promise<Greeted> {
    const { host, port, path, headers, keepaliveMs, watch } = this.#options;
    this.#step = UPGRADING;
    return this.#race((resolve, reject) => {
      const authority = net.isIPv6(host) ? `[${host}]` : host;
      const ws = new WebSocket(`wss://${authority}:${port}${path}`, [SUBPROTOCOL], {
        createConnection: () => socket,
        perMessageDeflate: false,
        ...WEBSOCKET_BOUNDS,
        ...(headers === undefined ? {} : { headers }),
      });
      let isAnswered = false;
      // After the answer, ws itself objects to what came, unless the error has a code of the network's.
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
        this.#greet(carrier, greeting, (answer) => resolve({ carrier, remote, answer }), reject);
      });
    });
  }

  #greet(
    carrier: Carrier,
    { hello, expects }: Greeting,
    resolve: (answer: ControlMessage | undefined) => void,
    reject: (error: Error) => void,
  ): void {
    this.#step = GREETING;
    const { keepaliveMs } = this.#options;
    const words = hello();
    if (expects === undefined) {
      carrier.sendControl(words);
      resolve(undefined);
      return;
    }
    carrier.onEnded = (reason = new Error("the server closed before its welcome")) => {
      reject(unwelcomed(reason));
    };
    carrier.onControl = (message) => {
      carrier.onEnded = undefined;
      carrier.onControl = undefined;
      if (message.type !== expects) {
        reject(new Error(`the server answered hello with ${message.type}`));
        return;
      }
      if ("keepaliveMs" in message) carrier.setKeepalive(Math.min(keepaliveMs, message.keepaliveMs));
      resolve(message);
    };
    carrier.sendControl(words);
  }

  /** As a sentence, unless it is one of ours. */
  explain(error: Error): Error {
    if (error === this.#reason) return error;
    return dialFault(error, {
      step: this.#step,
      host: this.#options.host,
      proxy: this.#proxy,
      noProtocol: this.#noProtocol,
    });
  }

  #race<T>(step: (resolve: (value: T) => void, reject: (error: Error) => void) => void): Promise<T> {
    return Promise.race([new Promise<T>(step), this.#interrupted.promise]);
  }
}

/** What a request holds that nobody but the server may read; the scheme before it is none. */
function secretsIn(headers: CarrierDialOptions["headers"] = {}): string[] {
  return Object.entries(headers)
    .filter(([name]) => name.toLowerCase() === "authorization")
    .map(([, value]) => value.replace(/^\S+ +/, ""));
}

function ignore(): void {}
