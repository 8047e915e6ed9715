import * as z from "zod";
import type { DoctorWatcher } from "../agent/doctor/doctor.ts";
import type { DoctorVerdict } from "../agent/doctor/report.ts";

const SIGNS: Readonly<Record<ReportedStep["state"], string>> = {
  passed: "✓",
  failed: "✗",
  skipped: "–",
  "not reached": "–",
};

/** A step as any report has it, the server's too. */
export const stepSchema = z.object({
  step: z.string(),
  state: z.enum(["passed", "failed", "skipped", "not reached"]),
  ms: z.number().optional(),
  detail: z.string(),
});
export type ReportedStep = z.infer<typeof stepSchema>;

/** The report for a person, line by line as it comes. */
export function reportTo(print: (text: string) => void) {
  /** One line for all of them: nothing is known of any. */
  const notReached: string[] = [];
  return {
    onServer: (server: string) => print(`\n${server}\n\n`),
    onStep: (step: ReportedStep) => {
      if (step.state === "not reached") notReached.push(step.step);
      else print(`${stepLine(step)}\n`);
    },
    onVerdict: ({ sentence, next }: Omit<DoctorVerdict, "culprit">) => {
      const names = notReached.splice(0).join(", ");
      if (names !== "") print(`${SIGNS["not reached"]} not reached: ${names}\n`);
      print(`\n${sentence}\n${next === "" ? "" : `Next: ${next}\n`}`);
    },
  } satisfies DoctorWatcher;
}

/** `✓ tls             12 ms  TLSv1.3, …` */
function stepLine({ step, state, ms, detail }: ReportedStep): string {
  const time = ms === undefined ? "" : `${Math.round(ms)} ms`;
  const words = state === "skipped" ? `skipped: ${detail}` : detail;
  return `${SIGNS[state]} ${step.padEnd(13)} ${time.padStart(8)}  ${words}`;
}
