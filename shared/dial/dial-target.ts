import type { LookupAddress } from "node:dns";
import { connect, isIP, type Socket, type TcpNetConnectOpts } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { deferred } from "../basics/promises.ts";
import { seconds } from "../basics/text.ts";
import { NAMES } from "../names/lookup.ts";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";

/** Finds all addresses of a name, in the order in which they are tried. */
export type Lookup = (host: string, done: LookupDone) => void;
export type LookupDone = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void;

export interface TargetDialOptions {
  readonly target: Target;
  /** For the lookup and all addresses together. */
  readonly timeoutMs: number;
  /** Called for each resolved address before it is dialled. Returns the reason of a refusal, or `undefined`. */
  readonly permit?: (address: string, port: number) => string | undefined;
  readonly lookup?: Lookup;
}

/** The kernel detects a dead peer of a silent connection; nothing else checks. */
const KEEP_ALIVE_MS = 30_000;
/** Time for one address of a name while others wait. Node abandons it afterwards: too short loses distant targets. */
const ADDRESS_TIMEOUT_MS = { min: 250, max: 1_000 };
/** The kernel chooses source ports from here on (Linux: ip_local_port_range). */
const FIRST_EPHEMERAL_PORT = 32_768;

/**
 * Dials a target over TCP. A literal address needs no lookup. The addresses of a name that `permit` allows are tried by
 * Node's happy eyeballs (RFC 8305).
 */
export class TargetDial {
  readonly #options: TargetDialOptions;
  readonly #dialled = deferred<Socket>();
  #timer: NodeJS.Timeout | undefined;
  #socket: Socket | undefined;
  #isOver = false;

  constructor(options: TargetDialOptions) {
    const { lookup, target, timeoutMs } = options;
    this.#options = options;
    this.#timer = setTimeout(onTimeout, timeoutMs, this);
    const family = isIP(target.host);
    if (family !== 0) this.#tryConnect([{ address: target.host, family }]);
    else (lookup ?? lookupAll)(target.host, this.#onLookup);
  }

  /**
   * The open socket. Rejects with a `CulvertError`: `dial_*`, `forbidden`, `agent_exhausted`, or `caller_gone` after
   * `cancel()`.
   */
  get promise(): Promise<Socket> {
    return this.#dialled.promise;
  }

  cancel(): void {
    this.#fail(new CulvertError("caller_gone", `the dial of ${this.#where} was cancelled`));
  }

  timeOut(): void {
    const { target, timeoutMs } = this.#options;
    const time = `within ${seconds(timeoutMs)}`;
    const sentence =
      this.#socket === undefined
        ? `the name "${target.host}" did not resolve ${time}: check the agent's DNS`
        : `${this.#where} did not answer ${time}: check firewalls and network policies on the way`;
    this.#fail(new CulvertError("dial_timeout", sentence));
  }

  readonly #onLookup = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]): void => {
    if (this.#isOver) return;
    if (error !== null) this.#fail(lookupError(this.#options.target.host, error));
    else this.#tryConnect(addresses);
  };

  /** A policy reads the addresses of this machine, which throws when file descriptors run out. */
  #tryConnect(addresses: readonly LookupAddress[]): void {
    try {
      this.#connect(addresses);
    } catch (error) {
      this.#fail(connectError(this.#where, error as NodeJS.ErrnoException));
    }
  }

  #connect(addresses: readonly LookupAddress[]): void {
    const { permit, target, timeoutMs } = this.#options;
    let reason: string | undefined;
    const isPermitted = ({ address }: LookupAddress): boolean => {
      const refusal = permit?.(address, target.port);
      reason ??= refusal;
      return refusal === undefined;
    };
    const permitted = permit === undefined ? addresses : addresses.filter(isPermitted);
    const [first] = permitted;
    if (first === undefined) {
      this.#fail(
        reason === undefined
          ? new CulvertError("dial_name", `no such host: "${target.host}" has no address`)
          : new CulvertError("forbidden", `${this.#where} may not be dialled: ${reason}`),
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
    if (socket === undefined || this.#isOver) return;
    if (isSelf(socket, this.#options.target.port)) {
      this.#fail(new CulvertError("dial_refused", `${this.#where} ${REFUSED}`));
      return;
    }
    this.#end();
    this.#dialled.resolve(socket);
  };

  readonly #onError = (error: NodeJS.ErrnoException): void => {
    this.#fail(connectError(this.#where, error));
  };

  #fail(error: CulvertError): void {
    if (this.#isOver) return;
    this.#socket?.destroy();
    this.#end();
    this.#dialled.reject(error);
  }

  #end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // `ignore` stays, because the caller adds its own error listener a moment later.
    this.#socket?.off("error", this.#onError);
    this.#socket?.off("connect", this.#onConnect);
    this.#socket = undefined;
  }

  get #where(): string {
    return formatTarget(this.#options.target);
  }
}

function ignore(): void {}

function onTimeout(dial: TargetDial): void {
  dial.timeOut();
}

/** As the operating system resolves names, and none waits for another. */
export const lookupAll: Lookup = (host, done) => {
  NAMES.find(host).then(
    (addresses) => done(null, addresses),
    (error: NodeJS.ErrnoException) => done(error, []),
  );
};

/** Runs once for each CONNECT, so it makes no object that is not needed. */
function connectTo(host: string, port: number, more?: Partial<TcpNetConnectOpts>): Socket {
  return connect({
    host,
    port,
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    ...more,
  });
}

function connectToAny(addresses: readonly LookupAddress[], { host, port }: Target, timeoutMs: number): Socket {
  const each = Math.floor(timeoutMs / (addresses.length + 1));
  return connectTo(host, port, {
    lookup: (_host, _options, done) => done(null, [...addresses]),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: Math.max(ADDRESS_TIMEOUT_MS.min, Math.min(ADDRESS_TIMEOUT_MS.max, each)),
  });
}

/** A dial of an unused local port can join a socket to itself, when the kernel chooses that port as the source. */
function isSelf(socket: Socket, port: number): boolean {
  return port >= FIRST_EPHEMERAL_PORT && socket.localPort === port && socket.localAddress === socket.remoteAddress;
}

const REFUSED = "refused the connection: check that something listens there";

/** The outcome and the end of a sentence for each errno. */
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

/** Errors of several addresses by how much they tell: a refusal shows that a machine was there. */
const BY_INFORMATION = ["ECONNREFUSED", "ECONNRESET", "EMFILE", "ENFILE", "ETIMEDOUT"];

function connectError(where: string, error: NodeJS.ErrnoException): CulvertError {
  let code = error.code ?? "";
  if (error instanceof AggregateError) {
    const codes = error.errors.map((attempt: NodeJS.ErrnoException) => attempt.code ?? "");
    code = BY_INFORMATION.find((each) => codes.includes(each)) ?? codes[0] ?? code;
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
