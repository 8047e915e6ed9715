import { type Coverage, covers, type Piece, type Snapshot } from "./coverage.ts";
import { examine, TooExpensive } from "./examine.ts";
import { type MutationOptions, mutate } from "./mutate.ts";
import { Random } from "./random.ts";
import type { SharedInput } from "./shared-input.ts";
import { shrink } from "./shrink.ts";
import { type Bounds, mostOf, type Target, USUAL_BOUNDS } from "./target.ts";

export interface FuzzerOptions {
  readonly seed: number;
  /** From earlier runs. */
  readonly corpus: readonly Buffer[];
  readonly shared: SharedInput;
  readonly coverage: Coverage;
}

/** An input that breaks what should hold. */
export interface Finding {
  readonly input: Buffer;
  readonly error: Error;
}

/** Where a run stands. */
export interface Progress {
  readonly executions: number;
  /** Characters of code that were covered. */
  readonly reached: number;
  /** Inputs from which others are made. */
  readonly pool: number;
  /** The most expensive batch, in blocks of code for each byte of input. */
  readonly steps: number;
}

/** Reading the coverage costs as much as some hundred inputs. */
const BATCH = 500;
const MAX_WORDS = 500;

/** Looks for inputs of one target that reach new code, by changing those that did. */
export class Fuzzer {
  readonly #target: Target;
  readonly #options: FuzzerOptions;
  readonly #random: Random;
  readonly #coverage: Coverage;
  readonly #pool: Buffer[] = [];
  readonly #words = new Set<string>();
  readonly #bounds: Bounds;
  readonly #mutations: MutationOptions;
  /** Inputs that reach code which no earlier input has reached, in this run and the ones before. */
  readonly found: Buffer[] = [];
  /** The coverage of the last input. */
  #last: Snapshot = new Map();
  #executions = 0;
  #mostSteps = 0;

  constructor(target: Target, options: FuzzerOptions) {
    this.#target = target;
    this.#options = options;
    this.#coverage = options.coverage;
    this.#random = new Random(options.seed);
    this.#bounds = { ...USUAL_BOUNDS, ...target.bounds };
    this.#mutations = {
      random: this.#random,
      words: target.words.map((word) => (typeof word === "string" ? Buffer.from(word) : word)),
      maxLength: target.maxLength,
      other: () => this.#random.pick(this.#pool),
    };
  }

  get progress(): Progress {
    return {
      executions: this.#executions,
      reached: this.#coverage.reached,
      pool: this.#pool.length,
      steps: this.#mostSteps,
    };
  }

  /** Runs the known inputs, seeds and corpus. Each of them must hold. */
  async begin(): Promise<Finding | undefined> {
    for (const input of [...this.#target.seeds, ...this.#options.corpus]) {
      const problem = await this.#problemOf(input);
      if (problem !== undefined) return { input, error: problem };
      this.#pool.push(input);
      this.#coverage.add(this.#coverage.take());
    }
    if (this.#pool.length === 0) this.#pool.push(Buffer.alloc(0));
    return undefined;
  }

  /** Some hundred inputs more. */
  async batch(): Promise<Finding | undefined> {
    const inputs: Buffer[] = [];
    let bytes = 0;
    for (let count = 0; count < BATCH && !this.#options.shared.isStopped; count++) {
      const input = this.#next();
      inputs.push(input);
      bytes += input.length;
      const error = await this.#problemOf(input);
      if (error !== undefined) return this.#finding(input, error);
    }
    const snapshot = this.#coverage.take();
    const { steps } = this.#bounds;
    this.#mostSteps = Math.max(this.#mostSteps, this.#coverage.steps / (bytes + 1));
    const isExpensive = this.#coverage.steps > mostOf({ ...steps, fixed: steps.fixed * BATCH }, bytes);
    if (!isExpensive && this.#coverage.fresh(snapshot) === undefined) return undefined;
    const finding = await this.#lookAtEach(inputs);
    // Code that no single input has covered again is not searched another time.
    this.#coverage.add(snapshot);
    return finding;
  }

  #next(): Buffer {
    const random = this.#random;
    // The newest inputs have been changed least.
    const latest = Math.max(random.below(this.#pool.length), random.below(this.#pool.length));
    return mutate(this.#pool[latest] as Buffer, this.#mutations);
  }

  /** Which of a batch was it? */
  async #lookAtEach(inputs: readonly Buffer[]): Promise<Finding | undefined> {
    for (const input of inputs) {
      const error = (await this.#problemOf(input)) ?? this.#expense(input);
      if (error !== undefined) return this.#finding(input, error);
      const pieces = this.#coverage.fresh(this.#last);
      const finding = pieces === undefined ? undefined : await this.#keep(input, pieces);
      if (finding !== undefined) return finding;
    }
    return undefined;
  }

  #expense(input: Buffer): Error | undefined {
    this.#last = this.#coverage.take();
    const most = mostOf(this.#bounds.steps, input.length);
    if (this.#coverage.steps <= most) return undefined;
    const { steps } = this.#coverage;
    return new TooExpensive(`${steps} blocks of code ran for an input of ${input.length} bytes, at most ${most} may`);
  }

  /** Among the shorter ones may be one that shows a bug. */
  async #keep(input: Buffer, pieces: readonly Piece[]): Promise<Finding | undefined> {
    let finding: Finding | undefined;
    const least = await shrink(input, async (shorter) => {
      const error = await this.#problemOf(shorter);
      if (error !== undefined) finding ??= { input: shorter, error };
      return error === undefined && covers(this.#coverage.take(), pieces);
    });
    if (finding !== undefined) return this.#finding(finding.input, finding.error);
    await this.#problemOf(least);
    this.#coverage.add(this.#coverage.take());
    this.#coverage.add(this.#last);
    this.#pool.push(least);
    this.found.push(least);
    return undefined;
  }

  async #finding(input: Buffer, error: Error): Promise<Finding> {
    const kind = kindOf(error);
    let last = error;
    const least = await shrink(input, async (shorter) => {
      this.#coverage.take();
      const problem = (await this.#problemOf(shorter)) ?? this.#expense(shorter);
      if (problem === undefined || kindOf(problem) !== kind) return false;
      last = problem;
      return true;
    });
    return { input: least, error: last };
  }

  async #problemOf(input: Buffer): Promise<Error | undefined> {
    this.#executions++;
    this.#options.shared.begin(input);
    try {
      const result = examine(this.#target, input);
      const word = typeof result === "string" ? result : await result;
      if (this.#words.size < MAX_WORDS && !this.#words.has(word)) {
        this.#words.add(word);
        this.#pool.push(input);
      }
      return undefined;
    } catch (error) {
      return error instanceof Error ? error : new Error(`${error} was thrown, which is no Error`);
    }
  }
}

/** The same fault has the same class and comes from the same place. */
function kindOf({ name, stack = "" }: Error): string {
  const places = stack.split("\n").filter((line) => /^ {4}at /.test(line));
  return `${name} ${places[0]}`;
}
