import { type Profiler, Session } from "node:inspector";

/** The coverage of a period: for each script, the characters that were run. */
export type Snapshot = ReadonlyMap<string, Uint8Array>;

/** A piece of a script. */
export interface Piece {
  readonly script: string;
  readonly from: number;
  readonly to: number;
}

/** Which code runs, by V8's precise block coverage: nothing is added to the code, and counting costs little. */
export class Coverage {
  readonly #session = new Session();
  readonly #wanted: RegExp;
  readonly #covered = new Map<string, Uint8Array>();
  #steps = 0;

  /** `wanted`: whose scripts, by their URLs. */
  constructor(wanted: RegExp) {
    this.#wanted = wanted;
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
    this.take();
  }

  /** Blocks that were entered between the last two calls to `take`. */
  get steps(): number {
    return this.#steps;
  }

  /** Characters of code that have been covered in all. */
  get reached(): number {
    let reached = 0;
    for (const script of this.#covered.values()) for (const run of script) reached += run;
    return reached;
  }

  /** Takes the coverage since the last call. */
  take(): Snapshot {
    const snapshot = new Map<string, Uint8Array>();
    this.#steps = 0;
    this.#session.post("Profiler.takePreciseCoverage", (error, { result }) => {
      if (error !== null) throw error;
      for (const { url, functions } of result) if (this.#wanted.test(url)) snapshot.set(url, this.#flatten(functions));
    });
    return snapshot;
  }

  /** Outer functions and blocks come before those inside them, which say it more precisely. */
  #flatten(functions: readonly Profiler.FunctionCoverage[]): Uint8Array {
    const end = Math.max(0, ...functions.map(({ ranges: [whole] }) => whole?.endOffset ?? 0));
    const run = new Uint8Array(end);
    for (const { ranges } of functions) {
      for (const { startOffset, endOffset, count } of ranges) {
        run.fill(count > 0 ? 1 : 0, startOffset, endOffset);
        this.#steps += count;
      }
    }
    return run;
  }

  /** The pieces that no earlier snapshot has covered; `undefined`: none. */
  fresh(snapshot: Snapshot): Piece[] | undefined {
    const pieces: Piece[] = [];
    for (const [script, run] of snapshot) {
      const known = this.#covered.get(script);
      for (let at = 0; at < run.length; at++) {
        if (run[at] === 0 || known?.[at] === 1) continue;
        const from = at;
        while (at < run.length && run[at] === 1 && known?.[at] !== 1) at++;
        pieces.push({ script, from, to: at });
      }
    }
    return pieces.length === 0 ? undefined : pieces;
  }

  add(snapshot: Snapshot): void {
    for (const [script, run] of snapshot) {
      let known = this.#covered.get(script);
      if (known === undefined || known.length < run.length) {
        const larger = new Uint8Array(run.length);
        if (known !== undefined) larger.set(known);
        known = larger;
        this.#covered.set(script, known);
      }
      for (let at = 0; at < run.length; at++) if (run[at] === 1) known[at] = 1;
    }
  }

  stop(): void {
    this.#session.disconnect();
  }
}

export function covers(snapshot: Snapshot, pieces: readonly Piece[]): boolean {
  return pieces.every(({ script, from, to }) => {
    const run = snapshot.get(script);
    for (let at = from; at < to; at++) if (run?.[at] !== 1) return false;
    return true;
  });
}
