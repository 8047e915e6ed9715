import type { LookupAddress } from "node:dns";
import { connect, type Socket, type TcpNetConnectOpts } from "node:net";

/** Time until the next address is tried while those before it go on (RFC 8305 §5), ms. */
const NEXT_ADDRESS_MS = 250;
/** Attempts that go on at once: a name may have many addresses that are all silent. With one more the oldest ends. */
const MAX_ATTEMPTS = 4;
/** The oldest attempt continues for this time at least, ms: the kernel sends a lost SYN again after a second. */
const MIN_ATTEMPT_MS = 2_000;
/** A name may have any number of addresses, and a sentence names a few. */
const SHOWN_ADDRESSES = 4;
/** Errors of several addresses by how much they tell: a refusal shows that a machine was there. */
const BY_INFORMATION = ["ECONNREFUSED", "ECONNRESET", "EMFILE", "ENFILE", "ETIMEDOUT"];

export interface AddressRaceOptions {
  readonly port: number;
  /** Options of each socket. */
  readonly socket: Omit<TcpNetConnectOpts, "host" | "port">;
  /** Takes over the open socket. It keeps one error listener, because the caller adds its own a moment later. */
  readonly onConnected: (socket: Socket) => void;
  /** No address can be connected to. Of several, the error has the code that tells most, and a cause for each. */
  readonly onFailed: (error: NodeJS.ErrnoException) => void;
}

/**
 * Connects to the first of some addresses that answers (RFC 8305, Happy Eyeballs). An attempt ends with its own error,
 * with the success of another one, or when its owner destroys the race: a distant peer, or one whose SYN was lost and
 * is sent again after a second, needs the whole time. Of one address it is a plain connect.
 *
 * ```
 *  address 1 ──SYN──────────────────────────────▶ answers after 320 ms: taken
 *  address 2    250 ms ──SYN──────────────────▶ ✕ destroyed
 * ```
 */
export class AddressRace {
  readonly #options: AddressRaceOptions;
  readonly #waiting: LookupAddress[];
  #attempts: Attempt[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** At least one address, in the order of preference. The events come later. */
  constructor(addresses: readonly LookupAddress[], options: AddressRaceOptions) {
    this.#options = options;
    this.#waiting = addresses.length === 1 ? [...addresses] : alternating(addresses);
    this.#beginNext();
  }

  /** Ends all attempts, without an event. */
  destroy(): void {
    this.#stop();
    for (const attempt of this.#attempts) attempt.end()?.destroy();
  }

  /** The result of each address so far, for a sentence. Empty for one address alone, which is known. */
  get causes(): string {
    const count = this.#attempts.length + this.#waiting.length;
    if (count < 2) return "";
    const shown = this.#attempts.slice(0, SHOWN_ADDRESSES).map(({ address, error }) => {
      return `${address}: ${error === undefined ? "no answer" : (error.code ?? error.message)}`;
    });
    return [...shown, ...(count > shown.length ? [`${count - shown.length} more`] : [])].join(", ");
  }

  #beginNext(): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#oldestOfAll()?.giveUp();
    const { port, socket } = this.#options;
    this.#attempts.push(new Attempt(connect({ ...socket, host: next.address, port }), next.address, this));
    if (this.#waiting.length === 0) return;
    const oldest = this.#oldestOfAll();
    const leftMs = oldest === undefined ? 0 : oldest.begunMs + MIN_ATTEMPT_MS - performance.now();
    this.#timer = setTimeout(onTimer, Math.max(NEXT_ADDRESS_MS, leftMs), this);
  }

  /** The attempt that ends if one more begins. */
  #oldestOfAll(): Attempt | undefined {
    const going = this.#attempts.filter(({ error }) => error === undefined);
    return going.length < MAX_ATTEMPTS ? undefined : going[0];
  }

  hurry(): void {
    this.#stop();
    this.#beginNext();
  }

  onConnected(attempt: Attempt): void {
    const socket = attempt.end();
    this.destroy();
    if (socket !== undefined) this.#options.onConnected(socket);
  }

  onFailed(): void {
    if (this.#waiting.length > 0) this.hurry();
    else if (this.#attempts.every(({ error }) => error !== undefined)) this.#options.onFailed(this.#error());
  }

  #error(): NodeJS.ErrnoException {
    const errors = this.#attempts.flatMap(({ error }) => error ?? []);
    const [first] = errors;
    if (first !== undefined && errors.length === 1) return first;
    const codes = errors.map(({ code }) => code);
    const code = BY_INFORMATION.find((each) => codes.includes(each)) ?? first?.code;
    return Object.assign(new AggregateError(errors, this.causes), { syscall: "connect", ...(code && { code }) });
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** One address. It has no part in the socket after its end: a listener would keep all of the race in memory. */
class Attempt {
  readonly address: string;
  readonly begunMs = performance.now();
  error: NodeJS.ErrnoException | undefined;
  readonly #race: AddressRace;
  #socket: Socket | undefined;

  constructor(socket: Socket, address: string, race: AddressRace) {
    this.address = address;
    this.#race = race;
    this.#socket = socket;
    socket.on("error", ignore);
    socket.on("error", this.#onError);
    socket.on("connect", this.#onConnect);
  }

  /** Gives the socket back, if it has not failed. */
  end(): Socket | undefined {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.off("error", this.#onError);
    socket?.off("connect", this.#onConnect);
    return socket;
  }

  giveUp(): void {
    this.error = Object.assign(new Error("no answer"), { code: "ETIMEDOUT" });
    this.end()?.destroy();
  }

  readonly #onConnect = (): void => this.#race.onConnected(this);

  readonly #onError = (error: NodeJS.ErrnoException): void => {
    this.error = error;
    this.end();
    this.#race.onFailed();
  };
}

function ignore(): void {}

function onTimer(race: AddressRace): void {
  race.hurry();
}

/** The families in turn, beginning with the preferred one (RFC 8305 §4): one of them may lead nowhere at all. */
function alternating(addresses: readonly LookupAddress[]): LookupAddress[] {
  const preferred = addresses[0]?.family;
  const first = addresses.filter(({ family }) => family === preferred);
  const second = addresses.filter(({ family }) => family !== preferred);
  return Array.from({ length: Math.max(first.length, second.length) }, (_, index) =>
    [first[index], second[index]].flatMap((address) => address ?? []),
  ).flat();
}
