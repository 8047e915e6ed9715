/** Columns of a help text: the terminal's, as far as lines stay readable; 100 for a file or a pager. */
export function helpWidth(): number {
  return Math.min(Math.max(process.stdout.columns ?? 100, 80), 120);
}
