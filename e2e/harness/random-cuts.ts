import type { FaultRelay } from "./faults.ts";
import type { Random } from "./random.ts";
import type { Cut, CutPoint } from "./relayed-pair.ts";

/** One cut of a path. */
export interface PlannedCut {
  readonly afterMs: number;
  /** Now, or this number of bytes later: in the middle of a TLS record. */
  readonly cut: Cut | CutPoint;
  /** The connection that comes next is cut as well, somewhere in its handshakes or its first payload. */
  readonly next?: CutPoint;
}

interface RandomCutsOptions {
  readonly random: Random;
  /** Shortest and longest time between two cuts, ms. */
  readonly everyMs: readonly [number, number];
}

/** About what one connection needs for TLS, upgrade, hello, welcome and the first payload, each way. */
const RESUME_BYTES = 6_000;
/** Within the first records of whatever is sent next. */
const RECORD_BYTES = 40_000;

/** The next cut; the seed decides it. */
export function nextCut({ random, everyMs }: RandomCutsOptions): PlannedCut {
  const afterMs = random.between(...everyMs);
  const how = random.pick<Cut>(["fin", "rst", "silence"]);
  const cut = random.chance(0.5) ? pointIn(random, how, RECORD_BYTES) : how;
  if (random.chance(0.6)) return { afterMs, cut };
  return { afterMs, cut, next: pointIn(random, random.pick<Cut>(["fin", "rst", "silence"]), RESUME_BYTES) };
}

function pointIn(random: Random, how: Cut, bytes: number): CutPoint {
  const at = random.between(0, bytes);
  return random.chance(0.5) ? { how, forward: at } : { how, backward: at };
}

/** Cuts a path again and again until it is disposed, and records what it did. */
export class RandomCuts implements Disposable {
  readonly #relay: FaultRelay;
  readonly #options: RandomCutsOptions;
  readonly #began = performance.now();
  #timer: NodeJS.Timeout | undefined;
  readonly story: string[] = [];

  constructor(relay: FaultRelay, options: RandomCutsOptions) {
    this.#relay = relay;
    this.#options = options;
    this.#plan();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }

  #plan(): void {
    const planned = nextCut(this.#options);
    this.#timer = setTimeout(() => {
      this.#cut(planned);
      this.#plan();
    }, planned.afterMs);
  }

  #cut({ cut, next }: PlannedCut): void {
    if (next !== undefined) this.#relay.cutLater(1, next);
    if (typeof cut === "string") this.#relay.cut(cut);
    else this.#relay.cutAt(cut);
    const at = Math.round(performance.now() - this.#began);
    const { accepted, cuts, bytes } = this.#relay;
    const before = `${accepted} connections, ${cuts} cuts, ${bytes.forward} bytes forward, ${bytes.backward} backward`;
    this.story.push(`${at} ms: ${JSON.stringify({ cut, next })} after ${before}`);
  }
}
