import { hostname } from "node:os";
import type { DoctorWatcher } from "../agent/doctor/doctor.ts";
import type { Step } from "../agent/doctor/report.ts";
import { version } from "../shared/basics/program.ts";
import { shellQuoted, withoutSecret } from "../shared/basics/text.ts";
import { printable } from "../shared/outcomes.ts";

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

/** What a report begins with: whoever reads it later has to know what was run, where and when. */
export interface Head {
  readonly version: string;
  readonly node: string;
  readonly host: string;
  /** ISO 8601. */
  readonly date: string;
  /** Without passwords. */
  readonly command: string;
}

/** `argv`: what follows `culvert doctor`. */
export function headOf(argv: readonly string[], now = new Date()): Head {
  return {
    version: version(),
    node: process.version,
    host: hostname(),
    date: now.toISOString(),
    command: ["culvert doctor", ...argv.map(shownWord)].join(" "),
  };
}

export function headText({ version, node, host, date, command }: Head): string {
  return `culvert ${version}, Node ${node}, on ${printable(host)}, ${date}\n$ ${command}\n`;
}

function shownWord(word: string): string {
  const [, flag = "", value = word] = /^(--?[\w-]+=)(.*)$/s.exec(word) ?? [];
  const text = printable(`${flag}${withoutSecret(value)}`, MAX_WORD);
  // The stars of a masked secret need no quotes: nobody runs this line again as it is.
  return /^[\w@%+=:,./*-]+$/.test(text) ? text : shellQuoted(text);
}

const MAX_WORD = 2_000;
