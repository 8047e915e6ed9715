import type { Finding } from "./steps.ts";

/** A finding, and what the whole report knows beside it. */
export interface Found extends Finding {
  /** This machine's clock was compared with the server's, and is as good. */
  readonly isClockRight?: boolean;
}

export function date(ms: number | undefined): string {
  return ms === undefined ? "a day long gone" : new Date(ms).toISOString().slice(0, 16).replace("T", " ");
}
