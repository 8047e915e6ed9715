import type { Duplex } from "node:stream";

/** Time until the next address is dialled while those before it go on (RFC 8305 §5), ms. */
const NEXT_ADDRESS_MS = 250;
/** A name may have any number of addresses. */
const MAX_ADDRESSES = 8;

/** Dials one address. The signal aborts when another address was quicker. */
export type OpenAddress = (address: string, signal: AbortSignal) => Promise<Duplex>;

/**
 * Connects to the first of some addresses that answers. The next one begins when the one before has failed, or has not
 * answered for a while. Rejects with the error of the last one that fails.
 */
export async function openFirst(addresses: readonly string[], open: OpenAddress, signal: AbortSignal): Promise<Duplex> {
  const [first = "", ...others] = addresses.slice(0, MAX_ADDRESSES);
  if (others.length === 0) return open(first, signal);
  return new AddressTurns([first, ...others], open, signal).opened;
}

class AddressTurns {
  readonly opened: Promise<Duplex>;
  readonly #waiting: string[];
  readonly #open: OpenAddress;
  readonly #over = new AbortController();
  readonly #signal: AbortSignal;
  #running = 0;
  #timer: NodeJS.Timeout | undefined;
  #resolve!: (stream: Duplex) => void;
  #reject!: (error: unknown) => void;

  constructor(addresses: readonly string[], open: OpenAddress, signal: AbortSignal) {
    this.#waiting = [...addresses];
    this.#open = open;
    this.#signal = AbortSignal.any([signal, this.#over.signal]);
    this.opened = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#next();
  }

  #next(): void {
    clearTimeout(this.#timer);
    const address = this.#waiting.shift();
    if (address === undefined) return;
    this.#running++;
    this.#open(address, this.#signal).then(this.#onOpen, this.#onFailed);
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#next(), NEXT_ADDRESS_MS);
  }

  readonly #onOpen = (stream: Duplex): void => {
    if (this.#over.signal.aborted) {
      stream.destroy(); // it was open in the same moment as another one
      return;
    }
    clearTimeout(this.#timer);
    this.#resolve(stream);
    this.#over.abort();
  };

  readonly #onFailed = (error: unknown): void => {
    this.#running--;
    if (this.#signal.aborted) this.#waiting.length = 0;
    if (this.#running === 0 && this.#waiting.length === 0) this.#reject(error);
    else this.#next();
  };
}
