import { NEXT_STEPS } from "culvert:next-steps";

/** Refusals of agents: the HTTP status or the close code, and the outcome that it stands for. */
const OF_AGENTS: Readonly<Record<string, string>> = {
  401: "unauthenticated",
  403: "forbidden",
  429: "limited",
  4401: "unauthenticated",
  4403: "forbidden",
  4429: "limited",
  4452: "draining",
};

/** What to do about a refusal, from docs/errors.md. */
export function nextStep(code: string): string | undefined {
  return NEXT_STEPS[OF_AGENTS[code] ?? code];
}
