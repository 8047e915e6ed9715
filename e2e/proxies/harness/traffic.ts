import { type Connection, connectThrough, established } from "../../harness/caller.ts";
import { Exchange, type ExchangeTarget, exchangeTarget, type Pace } from "../../harness/exchange.ts";
import { Payload } from "../../harness/payload.ts";
import { encodeTransfer, play, type TransferTarget, transferTarget } from "../../harness/transfer.ts";
import { within } from "../../harness/wait.ts";
import type { Namespace } from "../../kubernetes/world/namespace.ts";
import { InsideTarget } from "./inside-target.ts";

const TRANSFER_MS = 30_000;
const BULK_BYTES = 2_097_152;
const [PIECES, PIECE_BYTES] = [16, 64];
/** Frames that are never full. */
const TALK: Pace = { maxBytes: 20_000, maxPauseMs: 20 };
const SILENCE: Pace = { maxBytes: 0, maxPauseMs: 0 };

/** Traffic between callers and targets of one cluster; every byte is compared at both ends. */
export class Traffic implements AsyncDisposable {
  readonly #uds: string;
  readonly #transfers: InsideTarget<TransferTarget>;
  readonly #exchanges: InsideTarget<ExchangeTarget>;
  #seed = 0;

  private constructor(uds: string, transfers: InsideTarget<TransferTarget>, exchanges: InsideTarget<ExchangeTarget>) {
    this.#uds = uds;
    this.#transfers = transfers;
    this.#exchanges = exchanges;
  }

  /** Targets on the loopback of this namespace, for callers of this unix socket. */
  static async open(inside: Namespace, uds: string): Promise<Traffic> {
    const transfers = await InsideTarget.open(inside, await transferTarget());
    return new Traffic(uds, transfers, await InsideTarget.open(inside, await exchangeTarget()));
  }

  /** A large transfer in both directions. Returns pieces of the uploaded bytes, to search for elsewhere. */
  async transfer(): Promise<readonly Buffer[]> {
    const { target, address } = this.#transfers;
    const seed = ++this.#seed;
    const transfer = { seed, closing: "both at once", bytesUp: BULK_BYTES, bytesDown: BULK_BYTES } as const;
    const { socket } = await this.#connect(address);
    socket.write(encodeTransfer(transfer));
    const ends = Promise.all([play(socket, "caller", transfer), target.outcome(seed)]);
    await within(ends, TRANSFER_MS, "the end of a transfer");
    const payload = new Payload(2 * seed);
    return Array.from({ length: PIECES }, (_, piece) => payload.at((piece * BULK_BYTES) / PIECES, PIECE_BYTES));
  }

  /** A conversation of small messages in both directions until the test ends it, or a silent one. */
  async talk({ silent = false } = {}): Promise<Exchange> {
    const { target, address } = this.#exchanges;
    const seed = ++this.#seed;
    return new Exchange(`talk ${seed}`, await this.#connect(address), target, seed, silent ? SILENCE : TALK);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#transfers[Symbol.asyncDispose](), this.#exchanges[Symbol.asyncDispose]()]);
  }

  async #connect(target: string): Promise<Connection> {
    const connection = await established(connectThrough({ path: this.#uds }, target));
    return connection;
  }
}
