/** Certificates and tokens forgive less. */
export const CLOCK_TOLERANCE_MS = 5 * 60_000;

/** `1 day 2 h ahead of the server's`: two units, as exact as anybody needs it. `ms`: how far this machine is ahead. */
export function ahead(ms: number): string {
  const size = Math.abs(ms);
  if (size < 2_000) return "the same as the server's";
  return `${duration(size)} ${ms > 0 ? "ahead of" : "behind"} the server's`;
}

/**
 * What to say of the clocks where an answer with this Date header (RFC 9110 §6.6.1) refuses us; "" where they agree.
 */
export function clockNote(date: string | undefined, now: number): string {
  const aheadMs = now - Date.parse(date ?? "");
  return Math.abs(aheadMs) > CLOCK_TOLERANCE_MS ? `; this machine's clock is ${ahead(aheadMs)}` : "";
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
