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

/** Of a refusal whose cause is known to the word, one sentence. */
const OF_FAULTS: Readonly<Record<string, string>> = {
  certificate_expired:
    "give whoever shows this certificate a renewed one; kube-apiserver reads it only when it starts, so restart it.",
};

/** The advice for a refusal; if its cause is less clear, from docs/errors.md. */
export function nextStep({ code, fault = "" }: { readonly code: string; readonly fault?: string | undefined }) {
  return OF_FAULTS[fault] ?? NEXT_STEPS[OF_AGENTS[code] ?? code];
}
