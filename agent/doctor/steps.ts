import type { FaultFacts } from "../../shared/faults/fault-row.ts";
import type { FaultCode } from "../../shared/faults/faults.ts";

/** The steps, in this order. */
const STEPS = [
  "configuration",
  "proxy route",
  "dns",
  "tcp",
  "proxy",
  "tls",
  "upgrade",
  "inner tls",
  "admission",
  "clock",
  "echo",
  "upload",
  "download",
] as const;
export type StepName = (typeof STEPS)[number];

/** What is wrong at a step. */
export interface Finding extends FaultFacts {
  /** In the report's JSON. */
  readonly culprit: FaultCode;
}

export interface Step {
  readonly step: StepName;
  readonly state: "passed" | "failed" | "skipped" | "not reached";
  /** How long it took; absent where nothing was done. */
  readonly ms?: number;
  /** One line for a person. */
  readonly detail: string;
  readonly finding?: Finding;
  /** What else is wrong there. */
  readonly others?: readonly Finding[];
  /** The clock's: how far this machine is ahead of the server. */
  readonly aheadMs?: number;
  /** Of TLS, outside and inside: from the certificate that was shown upwards. */
  readonly chain?: readonly ChainLink[];
  /** Of TLS outside: who opens it on the way, and may. */
  readonly openedBy?: string;
}

export interface ChainLink {
  readonly subject: string;
  readonly issuer: string;
  readonly validFrom: string;
  readonly validTo: string;
}

/** What a step has found out: a value for the steps behind it, or a finding, with which they may still go on. */
export interface Passed<T> extends Pick<Step, "detail" | "finding" | "others" | "aheadMs" | "chain" | "openedBy"> {
  readonly value: T;
}

/** No later step can be reached. */
export class StepFailed extends Error {
  readonly finding: Finding;
  readonly chain: readonly ChainLink[] | undefined;

  constructor(
    finding: Finding,
    detail: string,
    { chain, cause }: { chain?: readonly ChainLink[]; cause?: unknown } = {},
  ) {
    super(detail, { cause });
    this.finding = finding;
    this.chain = chain;
  }
}

/** The steps so far; each is reported at once. */
export class StepLog {
  readonly steps: Step[] = [];
  readonly #onStep: (step: Step) => void;

  constructor(onStep: (step: Step) => void) {
    this.#onStep = onStep;
  }

  /** Rejects with its `StepFailed`. */
  async run<T>(step: StepName, look: () => Passed<T> | Promise<Passed<T>>): Promise<T> {
    const startedAt = performance.now();
    const ms = () => Math.round((performance.now() - startedAt) * 10) / 10;
    try {
      const { value, ...seen } = await look();
      this.add({ step, state: seen.finding === undefined ? "passed" : "failed", ms: ms(), ...seen });
      return value;
    } catch (error) {
      if (error instanceof StepFailed) {
        const { message: detail, finding, chain } = error;
        this.add({ step, state: "failed", ms: ms(), detail, finding, ...(chain && { chain }) });
      }
      throw error;
    }
  }

  add(step: Step): void {
    this.steps.push(step);
    this.#onStep(step);
  }

  /** The step does not apply. */
  skip(step: StepName, detail: string): void {
    this.add({ step, state: "skipped", detail });
  }

  /** The steps that were not taken: those behind a failed one were not reached, others not asked for. */
  finish(): readonly Step[] {
    const failed = this.steps.some(({ state }) => state === "failed");
    for (const step of STEPS) {
      if (this.steps.some((done) => done.step === step)) continue;
      this.add(
        failed
          ? { step, state: "not reached", detail: "" }
          : { step, state: "skipped", detail: "not asked for (--seconds 0)" },
      );
    }
    return this.steps;
  }
}
