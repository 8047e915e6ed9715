import type { DoctorWatcher } from "../agent/doctor/doctor.ts";
import type { Step } from "../agent/doctor/steps.ts";

const SIGNS = { passed: "✓", failed: "✗", skipped: "–", "not reached": "–" } as const satisfies Record<
  Step["state"],
  string
>;

/** A step as any report has it, the server's too. */
export interface ReportedStep {
  readonly step: string;
  readonly state: Step["state"];
  readonly ms?: number | undefined;
  readonly detail: string;
}

/** The report for a person, line by line as it comes. */
export function reportTo(print: (text: string) => void): DoctorWatcher {
  let steps: Step[] = [];
  return {
    onServer: (server) => {
      steps = [];
      print(`\n${server}\n\n`);
    },
    onStep: (step) => {
      steps.push(step);
      if (step.state !== "not reached") print(`${stepLine(step)}\n`);
    },
    onVerdict: ({ sentence, next }) => print(`${notReached(steps)}\n${sentence}\nNext: ${next}\n`),
  };
}

/** All steps of a report that is there as a whole. */
export function stepLines(steps: readonly ReportedStep[]): string {
  const taken = steps.filter(({ state }) => state !== "not reached");
  return `${taken.map((step) => `${stepLine(step)}\n`).join("")}${notReached(steps)}`;
}

/** One line for all of them: nothing is known of any. */
function notReached(steps: readonly ReportedStep[]): string {
  const names = steps.filter(({ state }) => state === "not reached").map(({ step }) => step);
  return names.length === 0 ? "" : `${SIGNS["not reached"]} not reached: ${names.join(", ")}\n`;
}

/** `✓ tls             12 ms  TLSv1.3, …` */
function stepLine({ step, state, ms, detail }: ReportedStep): string {
  const time = ms === undefined ? "" : `${Math.round(ms)} ms`;
  const words = state === "skipped" ? `skipped: ${detail}` : detail;
  return `${SIGNS[state]} ${step.padEnd(13)} ${time.padStart(8)}  ${words}`;
}

export function reportJson(report: object): string {
  return `${JSON.stringify(report, null, 2)}\n`;
}
