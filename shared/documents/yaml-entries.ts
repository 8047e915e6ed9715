import type { CST, Node, Scalar, YAMLError } from "yaml";

/** One key of a YAML mapping. */
export interface YamlEntry {
  readonly name: string;
  readonly isList: boolean;
  /** Its scalars as they were written; empty for `key:` alone, `undefined` if it has other values. */
  readonly texts: readonly string[] | undefined;
}

/** Maximum nesting. Options need two levels; a few more let a fault name its key. */
const MAX_DEPTH = 8;

/**
 * The entries of a YAML mapping, or faults as sentences. Its cost is bounded for any text: deep nesting is refused
 * before the composer recurses (V8 may abort at the end of the stack), keys are not compared in pairs, and aliases are
 * not expanded.
 */
export async function yamlEntries(text: string): Promise<{ readonly entries: YamlEntry[]; readonly faults: string[] }> {
  const { isMap, isScalar, isSeq, parseDocument, Parser } = await import("./yaml-parser.ts");
  if (isDeep(new Parser().parse(text))) return fault("it is nested too deeply.");
  // Every scalar stays the text that was written, as on the command line: `0660` is a mode, and `1e3` is no number.
  const { contents, errors } = parseDocument(text, { schema: "failsafe", uniqueKeys: false });
  if (errors.length > 0) return fault(...errors.map(shownFault));
  if (contents === null || (isScalar(contents) && contents.value === "")) return { entries: [], faults: [] };
  if (!isMap(contents)) return fault('expected "option: value" lines, such as "uds-name: /run/culvert.sock".');

  const textsOf = (value: Node | null): string[] | undefined => {
    if (value === null || (isScalar(value) && value.value === "")) return [];
    const scalars = isSeq(value) ? value.items : [value];
    return scalars.every((scalar): scalar is Scalar => isScalar(scalar))
      ? scalars.map(({ value }) => String(value))
      : undefined;
  };
  const entries = contents.items.map(({ key, value }) => ({
    name: isScalar(key) ? String(key.value) : String(key),
    isList: isSeq(value),
    texts: textsOf(value as Node | null),
  }));
  return { entries, faults: [] };
}

/** Whether the text is nested more deeply than any configuration needs. It does not recurse itself. */
export function isDeep(documents: Iterable<CST.Token>): boolean {
  let level = [...documents].flatMap((token) => (token.type === "document" ? (token.value ?? []) : []));
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((token) => ("items" in token ? token.items.flatMap(partsOf) : []));
  }
  return false;
}

function partsOf({ key, value }: { readonly key?: CST.Token | null; readonly value?: CST.Token }): CST.Token[] {
  return [key, value].filter((token) => token != null);
}

function fault(...faults: string[]): { entries: YamlEntry[]; faults: string[] } {
  return { entries: [], faults };
}

function shownFault({ code, message }: YAMLError): string {
  if (code === "MULTIPLE_DOCS") return 'it holds several documents ("---"), and one is expected.';
  return syntaxFault({ code, message: message.split("\n")[0]?.replace(/:$/, "") ?? "" });
}

type SyntaxFault = Pick<YAMLError, "code" | "message">;

/** A fault of the syntax with its place and a cure, because the parser uses words of the YAML specification. */
export function syntaxFault({ code, message }: SyntaxFault, place = ""): string {
  const words = message.replace(/closing (["'])quote/, "closing $1");
  const cure = message.startsWith("Implicit") ? KEY_CURE : CURES[code]; // two codes
  return `${words}${place}${cure === undefined ? "" : `: ${cure}`}.`;
}

const KEY_CURE = 'write "key: value" with a colon and a space, and close what a quote has opened';

/** Cures for faults whose message has none. */
const CURES: Partial<Record<YAMLError["code"], string>> = {
  BAD_ALIAS: "put what begins with * or & in quotes",
  BAD_INDENT: "indent it as its neighbours, and close what [ or { has opened",
  BAD_SCALAR_START: "put it in quotes",
  BLOCK_AS_IMPLICIT_KEY: 'indent it as its neighbours, and put a text with ": " in it in quotes',
  TAB_AS_INDENT: "write spaces",
  UNEXPECTED_TOKEN: "take it away, or put what belongs together in quotes",
};
