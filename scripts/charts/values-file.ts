import { isMap, isScalar, LineCounter, type Pair, parse, parseDocument, type YAMLMap } from "yaml";

/** A part of a JSON schema, or a whole one. */
export type Schema = { readonly [key: string]: unknown };

/** One key of values.yaml, with what its comment says. */
export interface Value {
  readonly key: string;
  /** `image.tag` */
  readonly path: string;
  readonly default: unknown;
  /** Empty: the comment has none. */
  readonly description: string;
  /** Heading of the table that begins with this value. */
  readonly section?: string;
  /** Name of the option whose value this is. */
  readonly option?: string;
  /** Overrides what is derived from the default. */
  readonly schema: Schema;
  /** Keys of a map. Empty for a map that is described as a whole: users choose its keys. */
  readonly children: readonly Value[];
}

/** The fault of a chart; its message is a sentence. */
export class ChartError extends Error {
  override readonly name = "ChartError";
}

/**
 * Reads a values.yaml. The comment above a key has its description behind `# --`, until the next line with `@`:
 *
 *     # @section Heading of a table in the README, which begins here
 *     # -- What the value does. One of a, b, c.
 *     # @option NAME                 the value is that option of the command, which says its type
 *     # @schema {maximum: 10}        JSON schema that overrides what is derived from the default
 *     key: a
 *
 * A map whose keys have descriptions takes these keys only. A map that is described as a whole takes any keys.
 */
export function parseValues(text: string, file: string): Value[] {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const fault = document.errors[0];
  if (fault !== undefined) throw new ChartError(`${file} is not valid YAML: ${fault.message}`);
  if (!isMap(document.contents)) throw new ChartError(`${file} has no keys.`);
  const values = readKeys(document.contents, [], file);
  const missing = withoutDescription(values);
  if (missing !== undefined) throw new ChartError(`${file}: ${missing} needs a description: "# -- What it does."`);
  return values;
}

/** The first value that users read nothing about. */
function withoutDescription(values: readonly Value[]): string | undefined {
  for (const { path, description, children } of values) {
    const missing = children.length > 0 ? withoutDescription(children) : description === "" ? path : undefined;
    if (missing !== undefined) return missing;
  }
  return undefined;
}

function readKeys(map: YAMLMap, parents: readonly string[], file: string): Value[] {
  return map.items.map((pair, index) => {
    // The comment above the first key of a nested map stands at the map.
    const above = index === 0 ? (map.commentBefore ?? "") : "";
    return readValue(pair, above, parents, file);
  });
}

function readValue({ key, value }: Pair, above: string, parents: readonly string[], file: string): Value {
  const name = isScalar(key) ? String(key.value) : String(key);
  const path = [...parents, name].join(".");
  const own = isScalar(key) ? (key.commentBefore ?? "") : "";
  const comment = readComment(`${above}\n${own}`, `${file}: ${path}`);
  const inside = isMap(value) ? readKeys(value, [...parents, name], file) : [];
  const children = inside.some(isDescribed) ? inside : [];
  const plain: unknown = isMap(value) || isScalar(value) ? value.toJSON() : JSON.parse(JSON.stringify(value));
  return { key: name, path, default: plain, ...comment, children };
}

function isDescribed({ description, children }: Value): boolean {
  return description !== "" || children.length > 0;
}

type Comment = Pick<Value, "description" | "section" | "option" | "schema">;

function readComment(text: string, where: string): Comment {
  const lines = text.split("\n").map((line) => line.trim());
  const tags = new Map<string, string>();
  let description: string[] | undefined;
  for (const line of lines) {
    const tag = /^@(\w+) (.*)$/.exec(line);
    if (tag !== null) tags.set(tag[1] as string, tag[2] as string);
    else if (line.startsWith("--")) description = [line.slice(2).trim()];
    else if (description !== undefined && line !== "") description.push(line);
  }
  const unknown = [...tags.keys()].find((name) => !["section", "option", "schema"].includes(name));
  if (unknown !== undefined)
    throw new ChartError(`${where}: there is no @${unknown}; use @section, @option or @schema.`);
  const section = tags.get("section");
  const option = tags.get("option");
  return {
    description: description?.join(" ") ?? "",
    ...(section === undefined ? {} : { section }),
    ...(option === undefined ? {} : { option }),
    schema: (parse(tags.get("schema") ?? "{}") as Schema | null) ?? {},
  };
}
