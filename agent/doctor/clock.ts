import type { Finding, Passed } from "./steps.ts";

/** Certificates and tokens forgive less. */
const TOLERANCE_MS = 5 * 60_000;

/** This machine's clock beside the server's; a header's date has whole seconds, and the way takes its time. */
export function compareClocks(serverTime: number, from: string, now = Date.now()): Passed<undefined> {
  const aheadMs = now - serverTime;
  const detail = `${ahead(aheadMs)} (${from})`;
  const finding: Finding = { culprit: "clock", by: ahead(aheadMs) };
  return { value: undefined, detail, aheadMs, ...(Math.abs(aheadMs) > TOLERANCE_MS && { finding }) };
}

/** `1 day 2 h ahead of the server's`: two units, as exact as anybody needs it. */
export function ahead(ms: number): string {
  const size = Math.abs(ms);
  if (size < 2_000) return "the same as the server's";
  return `${duration(size)} ${ms > 0 ? "ahead of" : "behind"} the server's`;
}

const UNITS = [
  ["day", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;

function duration(ms: number): string {
  const first = UNITS.findIndex(([, size]) => ms >= size);
  let rest = ms;
  const words: string[] = [];
  for (const [unit, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) words.push(`${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`);
  }
  return words.join(" ");
}
