import { type LookupAddress, lookup as systemLookup } from "node:dns";
import { connect, isIP, type Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { deferred } from "../basics/promises.ts";
import { seconds } from "../basics/text.ts";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";

/** All addresses of a name, in the order in which they are to be tried. */
export type Lookup = (
  host: string,
  done: (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void,
) => void;

export interface TargetDialOptions {
  readonly target: Target;
  /** For everything: the name and all its addresses. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  /** Asked for each resolved address before it is dialled; the reason of a refusal, or `undefined`. */
  readonly permit?: (address: string, port: number) => string | undefined;
  readonly lookup?: Lookup;
}

export interface TargetDial {
  /** The open socket, or a `CulvertError`: `dial_*`, `forbidden`, `agent_exhausted`, after `cancel()` `caller_gone`. */
  readonly promise: Promise<Socket>;
  cancel(): void;
}

/**
 * Dials a target over TCP. A literal address costs no lookup; of the addresses of a name all that `permit` lets
 * through are tried by Node's own happy eyeballs (RFC 8305).
 */
export function dialTarget(options: TargetDialOptions): TargetDial {
  const dialling = new DialAttempt(options);
  dialling.start();
  return dialling;
}

/** A dead peer of a silent connection is found by the kernel; nobody else looks. */
const KEEP_ALIVE_MS = 30_000;
/** How long one address of a name may take while others wait. Node abandons it then: too short loses distant targets. */
const ATTEMPT_MS = { min: 250, max: 1_000 };
/** Below this a port is nobody's source port (Linux: ip_local_port_range), so a dial cannot meet itself. */
const FIRST_EPHEMERAL_PORT = 32_768;

class DialAttempt implements TargetDial {
  readonly #options: TargetDialOptions;
  readonly #dialled = deferred<Socket>();
  #timer: NodeJS.Timeout | undefined;
  #socket: Socket | undefined;
  #settled = false;

  constructor(options: TargetDialOptions) {
    this.#options = options;
  }

  get promise(): Promise<Socket> {
    return this.#dialled.promise;
  }

  start(): void {
    const { lookup, signal, target, timeoutMs } = this.#options;
    if (signal?.aborted) {
      this.cancel();
      return;
    }
    signal?.addEventListener("abort", this.#onAbort);
    this.#timer = setTimeout(onTimeout, timeoutMs, this);
    const family = isIP(target.host);
    if (family !== 0) this.#begin([{ address: target.host, family }]);
    else (lookup ?? lookupAll)(target.host, this.#onLookup);
  }

  cancel(): void {
    this.#fail(new CulvertError("caller_gone", `the dial of ${formatTarget(this.#options.target)} was cancelled`));
  }

  timeOut(): void {
    const { target, timeoutMs } = this.#options;
    const time = `within ${seconds(timeoutMs)}`;
    const sentence =
      this.#socket === undefined
        ? `the name "${target.host}" did not resolve ${time}: check the agent's DNS`
        : `${this.#where()} did not answer ${time}: check firewalls and network policies on the way`;
    this.#fail(new CulvertError("dial_timeout", sentence));
  }

  readonly #onAbort = (): void => this.cancel();

  readonly #onLookup = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]): void => {
    if (this.#settled) return;
    if (error !== null) this.#fail(lookupError(this.#options.target.host, error));
    else this.#begin(addresses);
  };

  /** A policy looks at the machine's own addresses, which fails when descriptors run out: a bad end of this dial only. */
  #begin(addresses: readonly LookupAddress[]): void {
    try {
      this.#connect(addresses);
    } catch (error) {
      this.#fail(connectError(this.#where(), error as NodeJS.ErrnoException));
    }
  }

  #connect(addresses: readonly LookupAddress[]): void {
    const { permit, target, timeoutMs } = this.#options;
    let reason: string | undefined;
    const permitted =
      permit === undefined
        ? addresses
        : addresses.filter(({ address }) => {
            const refusal = permit(address, target.port);
            reason ??= refusal;
            return refusal === undefined;
          });
    const [first] = permitted;
    if (first === undefined) {
      const where = formatTarget(target);
      this.#fail(
        reason === undefined
          ? new CulvertError("dial_name", `no such host: "${target.host}" has no address`)
          : new CulvertError("forbidden", `${where} may not be dialled: ${reason}`),
      );
      return;
    }
    this.#socket =
      permitted.length === 1 ? connectTo(first.address, target.port) : connectToAny(permitted, target, timeoutMs);
    this.#socket.on("error", ignore);
    this.#socket.on("error", this.#onError);
    this.#socket.on("connect", this.#onConnect);
  }

  readonly #onConnect = (): void => {
    const socket = this.#socket;
    if (socket === undefined || this.#settled) return;
    if (isSelf(socket, this.#options.target.port)) {
      this.#fail(new CulvertError("dial_refused", `${this.#where()} ${REFUSED}`));
      return;
    }
    this.#settle();
    this.#dialled.resolve(socket);
  };

  readonly #onError = (error: NodeJS.ErrnoException): void => {
    this.#fail(connectError(this.#where(), error));
  };

  #fail(error: CulvertError): void {
    if (this.#settled) return;
    this.#socket?.destroy();
    this.#settle();
    this.#dialled.reject(error);
  }

  #settle(): void {
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    // `ignore` stays: whoever takes the socket binds listeners a moment later.
    this.#socket?.off("error", this.#onError);
    this.#socket?.off("connect", this.#onConnect);
    this.#socket = undefined;
  }

  #where(): string {
    return formatTarget(this.#options.target);
  }
}

function ignore(): void {}

function onTimeout(dialling: DialAttempt): void {
  dialling.timeOut();
}

function lookupAll(host: string, done: Parameters<Lookup>[1]): void {
  systemLookup(host, { all: true }, done);
}

/** Once for each CONNECT: no object is made and copied that need not be. */
function connectTo(host: string, port: number): Socket {
  return connect({
    host,
    port,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  });
}

function connectToAny(addresses: readonly LookupAddress[], target: Target, timeoutMs: number): Socket {
  return connect({
    host: target.host,
    port: target.port,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    lookup: (_host, _options, done) => done(null, [...addresses]),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: attemptMs(timeoutMs, addresses.length),
  });
}

function attemptMs(timeoutMs: number, addresses: number): number {
  return Math.max(ATTEMPT_MS.min, Math.min(ATTEMPT_MS.max, Math.floor(timeoutMs / (addresses + 1))));
}

/** DialAttempt an unused port of this machine, the kernel may choose that port as the source and join the socket to itself. */
function isSelf(socket: Socket, port: number): boolean {
  return port >= FIRST_EPHEMERAL_PORT && socket.localPort === port && socket.localAddress === socket.remoteAddress;
}

const REFUSED = "refused the connection: check that something listens there";

/** errno → outcome and what happened, as the end of a sentence (design: "Outcomes"). */
const CONNECT_ERRORS: Record<string, readonly [OutcomeCode, string]> = {
  ECONNREFUSED: ["dial_refused", REFUSED],
  ECONNRESET: ["dial_reset", "reset the connection"],
  ECONNABORTED: ["dial_reset", "aborted the connection"],
  EPIPE: ["dial_reset", "closed the connection"],
  ETIMEDOUT: ["dial_timeout", "did not answer"],
  EHOSTUNREACH: ["dial_unreachable", "cannot be reached: check the agent's routes (no route to host)"],
  ENETUNREACH: ["dial_unreachable", "cannot be reached: check the agent's routes (no route to its network)"],
  EHOSTDOWN: ["dial_unreachable", "cannot be reached: the host is down"],
  ENETDOWN: ["dial_unreachable", "cannot be reached: the network is down"],
  EACCES: ["dial_unreachable", "cannot be reached: the agent's kernel or firewall does not permit it"],
  EPERM: ["dial_unreachable", "cannot be reached: the agent's kernel or firewall does not permit it"],
  EINVAL: ["dial_unreachable", "cannot be reached: it is no address to connect to"],
  EAFNOSUPPORT: ["dial_unreachable", "cannot be reached: the agent has no network of that family"],
  EADDRNOTAVAIL: ["agent_exhausted", "cannot be dialled: the agent has no free local port or address for it"],
  EMFILE: ["agent_exhausted", "cannot be dialled: the agent has no file descriptor left"],
  ENFILE: ["agent_exhausted", "cannot be dialled: the agent's machine has no file descriptor left"],
  ENOBUFS: ["agent_exhausted", "cannot be dialled: the agent's kernel has no buffer left"],
  ENOMEM: ["agent_exhausted", "cannot be dialled: the agent's machine has no memory left"],
  EAGAIN: ["agent_exhausted", "cannot be dialled: the agent has no free local port for it"],
};

/** The error of several attempts is the one that says most: that somebody was there and said no. */
const TELLING = ["ECONNREFUSED", "ECONNRESET", "EMFILE", "ENFILE", "ETIMEDOUT"];

function connectError(where: string, error: NodeJS.ErrnoException): CulvertError {
  let code = error.code ?? "";
  if (error instanceof AggregateError) {
    const codes = error.errors.map((attempt: NodeJS.ErrnoException) => attempt.code ?? "");
    code = TELLING.find((telling) => codes.includes(telling)) ?? codes[0] ?? code;
  }
  const row = Object.hasOwn(CONNECT_ERRORS, code) ? CONNECT_ERRORS[code] : undefined;
  const [outcome, what] = row ?? ["dial_unreachable", `cannot be reached (${code || error.message})`];
  return new CulvertError(outcome, `${where} ${what}`, { cause: error });
}

function lookupError(host: string, error: NodeJS.ErrnoException): CulvertError {
  const code = error.code ?? "";
  if (CONNECT_ERRORS[code]?.[0] === "agent_exhausted") return connectError(`"${host}"`, error);
  const message =
    code === "ENOTFOUND" || code === "ENODATA"
      ? `no such host: "${host}" does not resolve at the agent: check the name and the agent's DNS`
      : code === "EAI_AGAIN"
        ? `the agent's name server did not answer for "${host}"`
        : `"${host}" does not resolve at the agent (${code || error.message})`;
  return new CulvertError("dial_name", message, { cause: error });
}
