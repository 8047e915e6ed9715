import type { IncomingHttpHeaders } from "node:http";
import { revealsSecret } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";

/** Of each name: a box may write more into an answer than a line of a report has room for. */
const MAX_NAME = 60;

/**
 * Boxes on the way put their names into answers; a culvert server writes neither `Server` nor `Via`. Pure. `secret`: what
 * was sent in confidence, and may come back.
 */
export function boxesIn(headers: IncomingHttpHeaders, secret = ""): string {
  return ["server", "via"].map((field) => named(field, String(headers[field] ?? ""), secret)).join("");
}

function named(field: string, text: string, secret: string): string {
  const name = revealsSecret(text, secret) ? "(not shown: it revealsSecret our token)" : printable(text, MAX_NAME);
  return name === "" ? "" : `, ${field} "${name}"`;
}
