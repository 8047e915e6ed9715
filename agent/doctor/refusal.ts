import { withoutClockNote } from "../../shared/tls/clock-skew.ts";
import { CloseCode, type LinkRefused } from "../../shared/wire/handshake.ts";
import type { Finding } from "./steps.ts";

/** How the server, or an API server that it asks, says that a certificate or token is out of its time. */
const TIMES = [
  ["ended", /\bexpired\b/],
  ["early", /\bnot valid (?:before|yet)\b/],
] as const;

/** The server's no, in its own words: the doctor has a step for the clocks. */
export function refusalFinding({ status, closeCode, reason }: LinkRefused): Finding {
  const by = withoutClockNote(reason);
  const isOfCredentials = status === 401 || closeCode === CloseCode.unauthenticated;
  const outOfTime = isOfCredentials ? TIMES.find(([, words]) => words.test(by))?.[0] : undefined;
  return { culprit: "not_admitted", by, ...(outOfTime && { outOfTime }) };
}
