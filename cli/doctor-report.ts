import type { DoctorWatcher, Report } from "../agent/doctor/doctor.ts";
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
  return {
    onServer: (server) => print(`\n${server}\n\n`),
    onStep: (step) => print(`${stepLine(step)}\n`),
    onVerdict: ({ sentence, next }) => print(`\n${sentence}\nNext: ${next}\n`),
  };
}

/** `✓ tls             12 ms  TLSv1.3, …` */
export function stepLine({ step, state, ms, detail }: ReportedStep): string {
  const time = ms === undefined ? "" : `${Math.round(ms)} ms`;
  const words = state === "skipped" ? `skipped: ${detail}` : detail || state;
  return `${SIGNS[state]} ${step.padEnd(13)} ${time.padStart(8)}  ${words}`;
}

export function reportJson(report: Report): string {
  return `${JSON.stringify(report, null, 2)}\n`;
}
