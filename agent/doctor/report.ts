import { explainFault, type FaultCode, type FaultFacts, type FaultText } from "../../shared/faults/faults.ts";
import { ahead, CLOCK_TOLERANCE_MS } from "../../shared/http/response-fields.ts";

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
] as const;
export type StepName = (typeof STEPS)[number];

/** A certificate in the report. */
export interface ChainLink {
  readonly subject: string;
  readonly issuer: string;
  readonly validFrom: string;
  readonly validTo: string;
}

/** A fault that a step has found. */
export interface Finding extends FaultFacts {
  /** In the report's JSON. */
  readonly culprit: FaultCode;
  /** By the server's clock, a credential that it refused is outside of its validity. */
  readonly outOfTime?: "ended" | "early";
}

/** The facts that a step reports. */
interface StepFacts {
  /** One line for a person. */
  readonly detail: string;
  readonly finding?: Finding;
  /** Further faults at the same step. */
  readonly others?: readonly Finding[];
  /** The clock's: how far this machine is ahead of the server. */
  readonly aheadMs?: number;
  /** Of TLS, outside and inside: from the certificate that was shown upwards. */
  readonly chain?: readonly ChainLink[];
  /** Of the outer TLS: the middlebox that opens it, and may. */
  readonly openedBy?: string;
}

export interface Step extends StepFacts {
  readonly step: StepName;
  readonly state: "passed" | "failed" | "skipped" | "not reached";
  /** How long it took; absent where nothing was done. */
  readonly ms?: number;
}

/** A step that has passed: its value for the steps after it, and perhaps a finding that does not stop them. */
export interface Passed<T> extends StepFacts {
  readonly value: T;
}

/** No later step can be reached. */
export class StepFailed extends Error {
  readonly finding: Finding;
  readonly seen: Pick<StepFacts, "chain" | "openedBy">;

  constructor(finding: Finding, detail: string, seen: StepFailed["seen"] = {}) {
    super(detail);
    this.finding = finding;
    this.seen = seen;
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
        const { message: detail, finding, seen } = error;
        this.add({ step, state: "failed", ms: ms(), detail, finding, ...seen });
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

  /** Adds the steps that were not taken. Behind a failed one they were not reached; else the clock alone is missing. */
  finish(): readonly Step[] {
    const failed = this.steps.some(({ state }) => state === "failed");
    for (const step of STEPS) {
      if (this.steps.some((done) => done.step === step)) continue;
      if (failed) this.add({ step, state: "not reached", detail: "" });
      else this.skip(step, "no answer said what time it is at the server");
    }
    return this.steps;
  }
}

/** The first fault of the path to a server, or none. */
export interface DoctorVerdict extends FaultText {
  readonly culprit: FaultCode | "none";
}

/** Findings that a missing credential causes. */
const OF_NO_CREDENTIAL: ReadonlySet<FaultCode> = new Set(["not_admitted", "inner_tls_off", "certificate_unseen"]);

const HEALTHY: DoctorVerdict = {
  culprit: "none",
  sentence: "Nothing is in the way: an agent with these options gets its tunnel.",
  next: "If it has none, look at its own log: it may run with other options, or from another place.",
};

/** The first finding, unless the clock explains it, and the findings that remain when that is corrected. Pure. */
export function verdictOf(steps: readonly Step[], now = Date.now()): DoctorVerdict {
  const openedBy = steps.find(({ step }) => step === "tls")?.openedBy;
  const opened = openedBy === undefined ? "" : `TLS is opened on the way by "${openedBy}", whom --outer-ca knows. `;
  const [first, ...others] = findingsIn(steps, now);
  if (first === undefined) return { ...HEALTHY, sentence: `${opened}${HEALTHY.sentence}` };
  const { sentence, next } = explainFault(first.culprit, first);
  // A fault of a file appears again at the step that needs the file.
  const also = new Set(others.map((finding) => explainFault(finding.culprit, finding)).map(alsoWords));
  also.delete(alsoWords({ sentence, next }));
  return { culprit: first.culprit, sentence: `${opened}${sentence}`, next: [next, ...also].join(" ") };
}

function alsoWords({ sentence, next }: FaultText): string {
  return `Beside that: ${sentence} ${next}`;
}

/** The culprit, and what else is wrong that follows from nothing else: the clock first if it explains the culprit. */
function findingsIn(steps: readonly Step[], now: number): Finding[] {
  const { finding: clock, aheadMs = 0 } = steps.find(({ step }) => step === "clock") ?? {};
  const all = inOrder(steps);
  if (clock === undefined) return all.filter(isOfItsOwn);
  const isByClock = (finding: Finding) => finding === clock || explains(now, aheadMs, finding);
  const others = all.filter((finding) => !isByClock(finding)).filter(isOfItsOwn);
  return all.slice(0, 1).some(isByClock) ? [clock, ...others] : [...others, clock];
}

/** The first finding, and those that no other finding causes: files, and what is outside of its validity. */
function isOfItsOwn({ culprit, validFrom, validTo }: Finding, index: number): boolean {
  const isDated = validFrom !== undefined || validTo !== undefined;
  return index === 0 || isDated || culprit === "configuration" || culprit === "no_credential";
}

/**
 * Findings in the order of the steps. Only a missing credential comes after a fault on the way to the server: a doctor
 * without a credential is asked about the way.
 */
function inOrder(steps: readonly Step[]): Finding[] {
  const findings = steps.flatMap(({ finding, others = [] }) => (finding ? [finding, ...others] : []));
  if (findings[0]?.culprit !== "no_credential") return findings;
  const ofTheWay = steps.find(
    ({ step, finding }) =>
      step !== "configuration" && step !== "clock" && finding !== undefined && !OF_NO_CREDENTIAL.has(finding.culprit),
  )?.finding;
  return ofTheWay === undefined ? findings : [ofTheWay, ...findings.filter((finding) => finding !== ofTheWay)];
}

/** By the server's clock, the certificate or token is valid. */
function explains(now: number, aheadMs: number, { outOfTime, validFrom, validTo }: Finding): boolean {
  // A credential that only the server finds outside of its validity is valid by this clock.
  if (outOfTime !== undefined) return outOfTime === (aheadMs > 0 ? "early" : "ended");
  if (validFrom === undefined && validTo === undefined) return false;
  const serverTime = now - aheadMs;
  return (validFrom ?? 0) <= serverTime && serverTime < (validTo ?? Number.POSITIVE_INFINITY);
}

/**
 * Compares this machine's clock with the server's. The Date header has whole seconds, and is older by the round trip.
 */
export function compareClocks(serverTime: number, now = Date.now()): Passed<undefined> {
  const aheadMs = now - serverTime;
  const detail = `${ahead(aheadMs)} (the answer's Date header)`;
  const finding: Finding = { culprit: "clock", by: ahead(aheadMs) };
  return { value: undefined, detail, aheadMs, ...(Math.abs(aheadMs) > CLOCK_TOLERANCE_MS && { finding }) };
}
