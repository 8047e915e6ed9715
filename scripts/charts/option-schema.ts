import type { Option } from "../../shared/config/options.ts";
import type { Schema } from "./values-file.ts";

/** As shared/config/values.ts reads them. */
const DURATION = "^(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
/** An IP address, perhaps in brackets, or a name: a colon elsewhere belongs to somebody's port. */
const ADDRESS = "^(\\[?[0-9A-Fa-f:.]+\\]?|[^\\s/@:\\[\\]]*)$";
const SIZE = "^[0-9]+(\\.[0-9]+)? *(B|Ki|KiB|Mi|MiB|Gi|GiB)?$";

/** The schema of an option's value, by its kind. Bounds of durations and sizes are checked when the process starts. */
export function optionSchema(row: Option<unknown>): Schema {
  const { min, max } = row.range ?? {};
  switch (row.kind) {
    case "true|false":
      return { type: "boolean" };
    case "number":
      return { type: "integer", minimum: min ?? 0, ...(max === undefined ? {} : { maximum: max }) };
    case "port":
      return { type: "integer", minimum: 0, maximum: 65_535 };
    case "duration":
      // The number 0 needs no unit. Other numbers without a unit are ambiguous.
      return withHint(
        { type: ["string", "integer"], pattern: DURATION, minimum: 0, maximum: 0 },
        "a duration such as 500ms, 8s or 1h30m",
      );
    case "size":
      return withHint({ type: ["string", "integer"], pattern: SIZE, minimum: 0 }, "a size such as 64KiB or 16MiB");
    case "octal":
      return withHint({ type: "string", pattern: "^(0o)?[0-7]{3,4}$" }, 'a mode in quotes such as "0660"');
    case "name":
      return withHint(
        { type: "string", pattern: "^[A-Za-z0-9._:-]{0,128}$" },
        "at most 128 letters, digits and . _ : -",
      );
    case "address":
      return withHint({ type: "string", pattern: ADDRESS }, "a host name or an IP address, without scheme and port");
    case "list":
      return { type: "array", items: { type: "string" } };
    case "text":
    case "file":
      return { type: "string" };
    default:
      if (!row.kind.includes("|")) throw new Error(`No schema for options of the kind ${row.kind}.`);
      return { enum: row.kind.split("|") };
  }
}

/** A schema with a readable message: helm prints "value must be '…'" for a `const`, but for a pattern the pattern. */
export function withHint(schema: Schema, hint: string): Schema {
  return { if: schema, else: { const: hint } };
}

/** Description of an option, with its bounds and its default. */
export function optionDescription(row: Option<unknown>): string {
  const shown = row.defaultText ?? row.write(row.default).join(row.separator ?? "");
  const limits = row.limits === undefined ? "" : ` Takes ${row.limits}.`;
  return `${row.help}${limits}${shown === "" ? "" : ` Default: ${shown}.`}`;
}
