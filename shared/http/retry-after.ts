/** `Retry-After` (RFC 9110 §10.2.3: seconds, or a date) as ms from now; `undefined`: absent, or neither. */
export function parseRetryAfter(field: string | undefined): number | undefined {
  if (field === undefined) return undefined;
  const ms = /^\d+$/.test(field) ? Number(field) * 1_000 : Date.parse(field) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}
