import { printable } from "../shared/outcomes.ts";

/** Names of agents and callers are theirs to choose: nothing of them reaches the terminal but what can be printed. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const clean = rows.map((row) => row.map((cell) => printable(cell)));
  const widths = (clean[0] ?? []).map((_, index) => Math.max(...clean.map((row) => row[index]?.length ?? 0)));
  return clean.map((row) =>
    row
      .map((cell, index) => cell.padEnd(widths[index] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

/** With separators of thousands. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Bytes for a person. */
export function size(bytes: number): string {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1_024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1_024;
  }
  return `${value.toFixed(1)} TiB`;
}

/** Time since then, in its two largest units. */
export function ago(since: string, now: Date): string {
  const elapsed = Math.max(0, Math.round((now.getTime() - Date.parse(since)) / 1_000));
  const [days, hours, minutes] = [Math.floor(elapsed / 86_400), Math.floor(elapsed / 3_600), Math.floor(elapsed / 60)];
  if (days > 0) return `${days}d${hours % 24}h`;
  if (hours > 0) return `${hours}h${minutes % 60}m`;
  return minutes > 0 ? `${minutes}m${elapsed % 60}s` : `${elapsed}s`;
}
