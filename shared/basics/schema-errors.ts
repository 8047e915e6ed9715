import type * as z from "zod";

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
