/** Fields that a formatter shows in places of their own. */
const SHOWN_ELSEWHERE = new Set(["time", "level", "name", "msg"]);

/**
 * One record of the log as one line for people: the message and `field=value` for each field that says something. The
 * stack of an error follows on lines of its own.
 */
export function readableLine(record: Readonly<Record<string, unknown>>): string {
  const fields: string[] = [];
  let stack = "";
  for (const [name, value] of Object.entries(record)) {
    if (SHOWN_ELSEWHERE.has(name) || value === undefined || value === "") continue;
    if (name === "err" && isError(value)) stack = `\n${value.stack}`;
    else fields.push(`${name}=${shown(value)}`);
  }
  const { msg = "" } = record;
  return [String(msg), ...(fields.length === 0 ? [] : [` ${fields.join(" ")}`])].join(" ") + stack;
}

function isError(value: unknown): value is { readonly stack: string } {
  return typeof value === "object" && value !== null && typeof (value as { stack?: unknown }).stack === "string";
}

/** Text with spaces is quoted, so that one sees where a value ends. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return typeof value === "string" && /[\s"=]/.test(text) ? JSON.stringify(text) : text;
}
