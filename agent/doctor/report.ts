import type { FaultFacts, FaultText } from "../../shared/faults/fault-row.ts";
import { explainFault, type FaultCode } from "../../shared/faults/faults.ts";
import { SET_THE_CLOCK } from "../../shared/faults/network-rows.ts";
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

/** What is wrong at a step. */
export interface Finding extends FaultFacts {
  /** In the report's JSON. */
  readonly culprit: FaultCode;
}

/** What a step has found. */
interface StepFacts {
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

export interface Step extends StepFacts {
  readonly step: StepName;
  readonly state: "passed" | "failed" | "skipped" | "not reached";
  /** How long it took; absent where nothing was done. */
  readonly ms?: number;
}

/** What a step has found out: a value for the steps after it, or a finding, with which they may still go on. */
export interface Passed<T> extends StepFacts {
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

/** The first fault on the way to a server, or none. */
export interface DoctorVerdict extends FaultText {
  readonly culprit: FaultCode | "none";
}

/** Certificates and tokens that are outside of their validity. */
const DATED = [
  "agent_expired",
  "agent_not_yet_valid",
  "token_expired",
  "ca_expired",
  "server_expired",
  "server_not_yet_valid",
] as const;

/** Findings that a wrong clock may cause. */
const TIMELY: ReadonlySet<FaultCode> = new Set([...DATED, "not_admitted"]);
/** Findings that no other finding causes. */
const OF_ITS_OWN: ReadonlySet<FaultCode> = new Set([...DATED, "configuration", "no_credential"]);

/** Findings that a missing credential causes. */
const OF_NO_CREDENTIAL: ReadonlySet<FaultCode> = new Set(["not_admitted", "inner_tls_off", "certificate_unseen"]);

/** The first finding, unless the clock explains it, and the findings that remain when that is corrected. Pure. */
export function verdictOf(steps: readonly Step[], now = Date.now()): DoctorVerdict {
  const findings = inOrder(steps);
  const [first] = findings;
  if (first === undefined) return healthy(steps.find(({ step }) => step === "tls")?.openedBy);
  const { finding: clock, aheadMs = 0, state } = steps.find(({ step }) => step === "clock") ?? {};
  const row = (finding: Finding) => explainFault(finding.culprit, { ...finding, isClockRight: state === "passed" });
  const isByClock = (finding: Finding) =>
    finding === clock || (clock !== undefined && TIMELY.has(finding.culprit) && explains(now, aheadMs, finding));
  const others = findings.filter((finding) => !isByClock(finding));
  const rows = others.filter((finding, index) => index === 0 || OF_ITS_OWN.has(finding.culprit)).map(row);
  if (isByClock(first)) rows.unshift(clockRow(aheadMs, first));
  else if (clock !== undefined) rows.push(row(clock));
  const [verdict = row(first), ...also] = rows;
  return {
    culprit: isByClock(first) ? "clock" : first.culprit,
    sentence: verdict.sentence,
    next: [verdict.next, ...alsoWords(also, verdict)].join(" "),
  };
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

/** Each sentence once: a fault of a file appears again at the step that needs the file. */
function alsoWords(rows: readonly FaultText[], { sentence: said }: FaultText): string[] {
  const also = new Map(rows.filter(({ sentence }) => sentence !== said).map((row) => [row.sentence, row]));
  return [...also.values()].map(({ sentence, next }) => `Beside that: ${sentence} ${next}`);
}

/** By the server's clock, the certificate or token is valid. */
function explains(now: number, aheadMs: number, { culprit, outOfTime, ...validity }: Finding): boolean {
  // A credential that only the server finds outside of its validity is valid by this clock.
  if (culprit === "not_admitted") return outOfTime === (aheadMs > 0 ? "early" : "ended");
  const { validFrom = 0, validTo = Number.POSITIVE_INFINITY } = validity;
  const serverTime = now - aheadMs;
  return validFrom <= serverTime && serverTime < validTo;
}

function healthy(openedBy: string | undefined): DoctorVerdict {
  if (openedBy === undefined) {
    return {
      culprit: "none",
      sentence: "Nothing is in the way: an agent with these options gets its tunnel.",
      next: "If it has none, look at its own log: it may run with other options, or from another place.",
    };
  }
  return {
    culprit: "none",
    sentence: `TLS is opened on the way by "${openedBy}", and an agent with these options gets its tunnel all the same: through inner TLS, of which nobody in between can read or change anything.`,
    next: "If it has none, look at its own log. Without the inspection it would cost less: ask the network team to exempt the server from it.",
  };
}

function clockRow(aheadMs: number, { culprit, by }: Finding): FaultText {
  const off = `The clock of this machine is ${ahead(aheadMs)}`;
  if (culprit === "not_admitted") return { sentence: `${off}, and the server says: ${by}.`, next: SET_THE_CLOCK };
  const harm = culprit === "clock" ? "certificates and tokens will not be valid by it" : "by it, what is valid is not";
  return { sentence: `${off}: ${harm}.`, next: SET_THE_CLOCK };
}

/**
 * Compares this machine's clock with the server's. The Date header has whole seconds, and is older by the round trip.
 */
export function compareClocks(serverTime: number, from: string, now = Date.now()): Passed<undefined> {
  const aheadMs = now - serverTime;
  const detail = `${ahead(aheadMs)} (${from})`;
  const finding: Finding = { culprit: "clock", by: ahead(aheadMs) };
  return { value: undefined, detail, aheadMs, ...(Math.abs(aheadMs) > CLOCK_TOLERANCE_MS && { finding }) };
}
