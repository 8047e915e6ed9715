import { ahead, CLOCK_TOLERANCE_MS } from "../../shared/http/clock-skew.ts";
import { rowOf, SET_THE_CLOCK } from "./fault-words.ts";
import type { Row } from "./handshake-rows.ts";
import type { Culprit, Finding, Passed, Step } from "./steps.ts";

/** What the steps come to. */
export interface Verdict extends Row {
  readonly culprit: Culprit | "none";
}

/** Certificates and tokens that are out of their time. */
const DATED = [
  "agent_expired",
  "agent_not_yet_valid",
  "token_expired",
  "ca_expired",
  "server_expired",
  "server_not_yet_valid",
] as const;

/** Findings behind which a wrong clock may stand. */
const TIMELY: ReadonlySet<Culprit> = new Set([...DATED, "not_admitted"]);
/** Findings that are no consequence of another one. */
const OF_ITS_OWN: ReadonlySet<Culprit> = new Set([...DATED, "configuration", "no_credential"]);

/** What a server says to an agent without a credential, wherever it says it. */
const OF_NO_CREDENTIAL: ReadonlySet<Culprit> = new Set(["not_admitted", "inner_tls_off", "certificate_unseen"]);

/** Who is in the way: the first finding, unless the clock explains it; and who will be once that is mended. Pure. */
export function judge(steps: readonly Step[], now = Date.now()): Verdict {
  const findings = inOrder(steps);
  const [first] = findings;
  if (first === undefined) return healthy(steps.find(({ step }) => step === "tls")?.openedBy);
  const { finding: clock, aheadMs = 0, state } = steps.find(({ step }) => step === "clock") ?? {};
  const row = (finding: Finding) => rowOf({ ...finding, isClockRight: state === "passed" });
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
 * Findings as the steps have them. Only a missing credential stands behind what is wrong on the way to the server: the
 * way is what a doctor without a credential is asked about.
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

/** Each once: what is known of a file shows again at the step that has need of it. */
function alsoWords(rows: readonly Row[], { sentence: said }: Row): string[] {
  const also = new Map(rows.filter(({ sentence }) => sentence !== said).map((row) => [row.sentence, row]));
  return [...also.values()].map(({ sentence, next }) => `Beside that: ${sentence} ${next}`);
}

/** By the other clock, what is out of its time would be in it. */
function explains(now: number, aheadMs: number, { culprit, outOfTime, ...validity }: Finding): boolean {
  // What the server calls out of its time is in it here, or would have been found before.
  if (culprit === "not_admitted") return outOfTime === (aheadMs > 0 ? "early" : "ended");
  const { validFrom = 0, validTo = Number.POSITIVE_INFINITY } = validity;
  const serverTime = now - aheadMs;
  return validFrom <= serverTime && serverTime < validTo;
}

function healthy(openedBy: string | undefined): Verdict {
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

function clockRow(aheadMs: number, { culprit, by }: Finding): Row {
  const off = `The clock of this machine is ${ahead(aheadMs)}`;
  if (culprit === "not_admitted") return { sentence: `${off}, and the server says: ${by}.`, next: SET_THE_CLOCK };
  const harm = culprit === "clock" ? "certificates and tokens will not be valid by it" : "by it, what is valid is not";
  return { sentence: `${off}: ${harm}.`, next: SET_THE_CLOCK };
}

/** This machine's clock beside the server's; a header's date has whole seconds, and the way takes its time. */
export function compareClocks(serverTime: number, from: string, now = Date.now()): Passed<undefined> {
  const aheadMs = now - serverTime;
  const detail = `${ahead(aheadMs)} (${from})`;
  const finding: Finding = { culprit: "clock", by: ahead(aheadMs) };
  return { value: undefined, detail, aheadMs, ...(Math.abs(aheadMs) > CLOCK_TOLERANCE_MS && { finding }) };
}
