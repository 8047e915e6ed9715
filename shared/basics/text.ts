import type * as z from "zod";

/** The known word nearest to a mistyped one, or `undefined` when none is near enough to be a guess. */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  if (word.length > 100) return undefined;
  let best: string | undefined;
  // With a third of its letters wrong a word is no typing error any more, and everything is near to one letter.
  let bestDistance = Math.min(Math.max(2, Math.floor(word.length / 3)) + 1, word.length);
  for (const candidate of known) {
    const distance = editDistance(word, candidate, bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Damerau-Levenshtein distance (neighbours swapped count once); `limit` or more is returned as `limit`. */
export function editDistance(a: string, b: string, limit = Number.POSITIVE_INFINITY): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let before: number[] = [];
  let above = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (above[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      }
      row.push(least);
    }
    before = above;
    above = row;
  }
  return Math.min(above[b.length] ?? 0, limit);
}

/** A time for a sentence, with two digits below 10 s: 4899 ms is "4.9 s", 60 ms is "0.06 s", 125400 ms is "125 s". */
export function seconds(ms: number): string {
  const value = ms / 1_000;
  return `${Number(value < 10 ? value.toPrecision(2) : value.toFixed(0))} s`;
}

/** A word for a command that users paste into a shell. */
export function shellQuoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

const GO_TRUE: readonly string[] = ["1", "t", "T", "TRUE", "true", "True"];
const GO_FALSE: readonly string[] = ["0", "f", "F", "FALSE", "false", "False"];

/** A boolean as Go writes it (strconv.ParseBool), and so Konnectivity's manifests; `undefined`: it is neither. */
export function goBoolean(text: string): boolean | undefined {
  if (GO_TRUE.includes(text)) return true;
  return GO_FALSE.includes(text) ? false : undefined;
}

/** The value of a JSON text, or `undefined`, which no schema accepts, for a text that is none. */
export function jsonOf(text: string | Buffer): unknown {
  try {
    return JSON.parse(String(text));
  } catch {
    return undefined;
  }
}

/** This many characters identify a secret: a text that was truncated may hold no more of it. */
const TELLTALE = 8;
/** Letters and digits stay the same in every escaping; the characters between them may not. */
const RUN = new RegExp(`[A-Za-z0-9]{${TELLTALE},}`, "g");

/** Does a text from outside contain this secret, or the beginning of one of its runs of letters and digits? */
export function revealsSecret(text: string, secret: string): boolean {
  if (secret === "") return false;
  const parts = [secret, ...(secret.match(RUN) ?? [])];
  return parts.some((part) => text.includes(part.slice(0, TELLTALE)));
}

/**
 * Masks users and passwords of URLs, also of several in one value and of mistaken ones; and a query, which may be a
 * token. A password may hold any character: all before the last @ goes.
 */
export function withoutSecret(text: string): string {
  return text
    .replace(/^([a-z][a-z\d+.-]*:\/\/).*@/is, "$1***@")
    .replace(/^(?![a-z][a-z\d+.-]*:\/\/)[^/=\s:]+:.*@/is, "***@")
    .replace(/^([a-z][a-z\d+.-]*:\/\/[^?]*)\?.*/is, "$1?***");
}

/**
 * Does `value` match a pattern with stars, given as the pieces between them (`a*b` is `["a", "b"]`; one piece alone is
 * the value itself)? In linear time, unlike a regular expression that backtracks.
 */
export function matchesWildcard(pieces: readonly string[], value: string): boolean {
  const first = pieces[0] ?? "";
  if (pieces.length <= 1) return value === first;
  const last = pieces.at(-1) ?? "";
  const end = value.length - last.length;
  if (end < first.length || !value.startsWith(first) || !value.endsWith(last)) return false;
  let from = first.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = value.indexOf(piece, from);
    if (found < 0 || found + piece.length > end) return false;
    from = found + piece.length;
  }
  return true;
}

/**
 * Whether the subject of a token matches a pattern, in which `*` matches characters but a colon, or alone for every
 * subject.
 */
export function matchesSubject(pattern: string, subject: string): boolean {
  if (pattern === "*") return true;
  const wanted = pattern.split(":");
  const parts = subject.split(":");
  return wanted.length === parts.length && wanted.every((part, i) => matchesWildcard(part.split("*"), parts[i] ?? ""));
}

/** Words for the types of values, by zod's names. */
const KINDS: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  tuple: "a list",
  object: "an object",
  record: "an object",
};

/**
 * Messages for peers and users, for `safeParse(value, { error: schemaMessage })`. Each one continues the path of its
 * key. A message that the schema itself gives wins.
 */
export function schemaMessage(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined) return "is missing";
  switch (issue.code) {
    case "invalid_type":
      return `must be ${KINDS[issue.expected] ?? "of another type"}`;
    case "invalid_value":
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}`;
    case "too_small":
      return `must ${amount(issue.origin, issue.minimum, "least")}`;
    case "too_big":
      return `must ${amount(issue.origin, issue.maximum, "most")}`;
    case "unrecognized_keys":
      return "has a key that is not known";
    case "invalid_format":
      return "has characters or a form that are not allowed";
    default:
      return "is of no known form";
  }
}

function amount(origin: string, bound: number | bigint, side: "least" | "most"): string {
  if (side === "least" && bound === 1 && (origin === "string" || origin === "array")) return "not be empty";
  if (origin === "string") return `have at ${side} ${bound} characters`;
  return origin === "array" ? `have at ${side} ${bound} items` : `be at ${side} ${bound}`;
}

/** The first issue of a value, after the path of its key. */
export function firstIssue({ issues: [issue] }: z.ZodError): string {
  const path = issue?.path.join(".") ?? "";
  return `${path === "" ? "it" : path} ${issue?.message ?? "is of no known form"}`;
}
