import { ahead, CLOCK_TOLERANCE_MS } from "../../shared/tls/clock-skew.ts";
import type { Finding, Passed } from "./steps.ts";

/** This machine's clock beside the server's; a header's date has whole seconds, and the way takes its time. */
export function compareClocks(serverTime: number, from: string, now = Date.now()): Passed<undefined> {
  const aheadMs = now - serverTime;
  const detail = `${ahead(aheadMs)} (${from})`;
  const finding: Finding = { culprit: "clock", by: ahead(aheadMs) };
  return { value: undefined, detail, aheadMs, ...(Math.abs(aheadMs) > CLOCK_TOLERANCE_MS && { finding }) };
}
