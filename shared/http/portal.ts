import { printable } from "../outcomes.ts";

/**
 * Where a redirection leads, for a log or a sentence: origin and path. What stands beside and behind them names sessions,
 * devices and people.
 */
export function placeOf(location: string): string {
  return printable(location.replace(/[?#;].*$/s, "").replace(/^([a-z][a-z\d+.-]*:)?\/\/[^/]*@/i, "$1//"), 120);
}
