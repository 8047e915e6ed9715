import type { LookupAddress } from "node:dns";
import { isIP, type Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { deferred } from "../basics/promises.ts";
import { seconds } from "../basics/text.ts";
import { NAMES_OF_TARGETS } from "../names/lookup.ts";
import { AddressRace } from "../net/address-race.ts";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";

/** Finds all addresses of a name, in the order in which they are tried, or gives up after `timeoutMs`. */
export type Lookup = (host: string, done: LookupDone, timeoutMs: number) => void;
export type LookupDone = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void;

export interface TargetDialOptions {
  readonly target: Target;
  /** For the lookup and all addresses together. */
  readonly timeoutMs: number;
  /** Called for each resolved address before it is dialled. Returns the reason of a refusal, or `undefined`. */
  readonly permit?: (address: string, port: number) => string | undefined;
  readonly lookup?: Lookup;
  /** The process that dials, for sentences; "the agent" when left out. */
  readonly dialler?: string;
}

/** The process that dials, in the sentences of this file. */
const DIALLER = "{dialler}"; // no host has braces

/** The kernel detects a dead peer of a silent connection; nothing else checks. */
const KEEP_ALIVE_MS = 30_000;
const SOCKET = { allowHalfOpen: true, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };
/** The kernel chooses source ports from here on (Linux: ip_local_port_range). */
const FIRST_EPHEMERAL_PORT = 32_768;

/** Dials a target over TCP: the addresses that `permit` allows. A literal address needs no lookup. */
export class TargetDial {
  readonly #options: TargetDialOptions;
  readonly #dialled = deferred<Socket>();
  #timer: NodeJS.Timeout | undefined;
  #race: AddressRace | undefined;
  #isOver = false;

  constructor(options: TargetDialOptions) {
    const { lookup, target, timeoutMs } = options;
    this.#options = options;
    this.#timer = setTimeout(onTimeout, timeoutMs, this);
    const family = isIP(target.host);
    if (family !== 0) this.#tryConnect([{ address: target.host, family }]);
    else (lookup ?? lookupAll)(target.host, this.#onLookup, timeoutMs);
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
      this.#race === undefined
        ? `the name "${target.host}" did not resolve ${time}: check ${DIALLER}'s DNS`
        : `${this.#where} did not answer ${time}: check firewalls and network policies on the way${this.#causes}`;
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
    const { permit, target } = this.#options;
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
    const { port } = target;
    const events = { onConnected: this.#onConnected, onFailed: this.#onFailed };
    this.#race = new AddressRace(permitted, { port, socket: SOCKET, ...events });
  }

  readonly #onConnected = (socket: Socket): void => {
    if (isSelf(socket, this.#options.target.port)) {
      socket.destroy();
      this.#fail(new CulvertError("dial_refused", `${this.#where} ${REFUSED}`));
      return;
    }
    this.#end();
    this.#dialled.resolve(socket);
  };

  readonly #onFailed = (error: NodeJS.ErrnoException): void => {
    this.#fail(connectError(this.#where, error, this.#causes));
  };

  #fail(error: CulvertError): void {
    if (this.#isOver) return;
    this.#race?.destroy();
    this.#end();
    const { message, code, cause } = error;
    const { dialler = "the agent" } = this.#options;
    this.#dialled.reject(new CulvertError(code, message.replaceAll(DIALLER, dialler), { cause }));
  }

  #end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#race = undefined;
  }

  /** The result of each address, where there are several. */
  get #causes(): string {
    const causes = this.#race?.causes ?? "";
    return causes === "" ? "" : ` (${causes})`;
  }

  get #where(): string {
    return formatTarget(this.#options.target);
  }
}

function onTimeout(dial: TargetDial): void {
  dial.timeOut();
}

/** As the operating system resolves names, and none waits for another. */
export const lookupAll: Lookup = (host, done, timeoutMs) => {
  NAMES_OF_TARGETS.find(host, timeoutMs).then(
    (addresses) => done(null, addresses),
    (error: NodeJS.ErrnoException) => done(error, []),
  );
};

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
  EHOSTUNREACH: ["dial_unreachable", `cannot be reached: check ${DIALLER}'s routes (no route to host)`],
  ENETUNREACH: ["dial_unreachable", `cannot be reached: check ${DIALLER}'s routes (no route to its network)`],
  EHOSTDOWN: ["dial_unreachable", "cannot be reached: the host is down"],
  ENETDOWN: ["dial_unreachable", "cannot be reached: the network is down"],
  EACCES: ["dial_unreachable", `cannot be reached: ${DIALLER}'s kernel or firewall does not permit it`],
  EPERM: ["dial_unreachable", `cannot be reached: ${DIALLER}'s kernel or firewall does not permit it`],
  EINVAL: ["dial_unreachable", "cannot be reached: it is no address to connect to"],
  EAFNOSUPPORT: ["dial_unreachable", `cannot be reached: ${DIALLER} has no network of that family`],
  EADDRNOTAVAIL: ["agent_exhausted", `cannot be dialled: ${DIALLER} has no free local port or address for it`],
  EMFILE: ["agent_exhausted", `cannot be dialled: ${DIALLER} has no file descriptor left`],
  ENFILE: ["agent_exhausted", `cannot be dialled: ${DIALLER}'s machine has no file descriptor left`],
  EBUSY: ["agent_exhausted", `cannot be dialled: ${DIALLER} waits for too many other names: check its name servers`],
  ENOBUFS: ["agent_exhausted", `cannot be dialled: ${DIALLER}'s kernel has no buffer left`],
  ENOMEM: ["agent_exhausted", `cannot be dialled: ${DIALLER}'s machine has no memory left`],
  EAGAIN: ["agent_exhausted", `cannot be dialled: ${DIALLER} has no free local port for it`],
};

/** `causes`: of each address, in brackets. */
function connectError(where: string, error: NodeJS.ErrnoException, causes = ""): CulvertError {
  const { code = "" } = error;
  const row = Object.hasOwn(CONNECT_ERRORS, code) ? CONNECT_ERRORS[code] : undefined;
  const [outcome, what] = row ?? ["dial_unreachable", `cannot be reached (${code || error.message})`];
  return new CulvertError(outcome, `${where} ${what}${causes}`, { cause: error });
}

function lookupError(host: string, error: NodeJS.ErrnoException): CulvertError {
  const code = error.code ?? "";
  if (CONNECT_ERRORS[code]?.[0] === "agent_exhausted") return connectError(`"${host}"`, error);
  const message =
    code === "ENOTFOUND" || code === "ENODATA"
      ? `no such host: "${host}" does not resolve at ${DIALLER}: check the name and ${DIALLER}'s DNS`
      : code === "EAI_AGAIN"
        ? `${DIALLER}'s name server did not answer for "${host}"`
        : `"${host}" does not resolve at ${DIALLER} (${code || error.message})`;
  return new CulvertError("dial_name", message, { cause: error });
}
