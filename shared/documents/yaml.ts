import { Composer, type CST, isMap, isScalar, isSeq, LineCounter, type Node, Parser, type YAMLError } from "yaml";
import { printable } from "../outcomes.ts";

// Reads YAML of operators: documents of clusters and routes, and the file of --config, for which this file is loaded by
// import(). Scalars are the text that was written, as on the command line: `0660` is a mode, and `1e3` is no number.
// The cost of any text is bounded: deep nesting is refused before the composer recurses (V8 may abort at the end of the
// stack), keys are not compared in pairs, and aliases are not expanded.

export type PlainValue = string | readonly PlainValue[] | PlainMapping;
interface PlainMapping {
  readonly [key: string]: PlainValue;
}

/** One document of a file, or its fault as a sentence. */
type PlainDocument = {
  /** Present in a file of several documents; the first is 1. */ readonly number?: number;
} & (
  | { readonly value: PlainValue; readonly fault?: undefined }
  | { readonly value?: undefined; readonly fault: string }
);

/** The YAML documents of a text. Empty ones are left out, but counted. */
export function yamlDocuments(text: string): PlainDocument[] {
  const lines = new LineCounter();
  const tokens = [...new Parser(lines.addNewLine).parse(text)];
  if (isDeep(tokens)) return [{ fault: TOO_DEEP }];
  const composed = new Composer({ schema: "failsafe", uniqueKeys: false }).compose(tokens, true, text.length);
  const documents = [...composed]
    .map((document, index) => ({ document, number: index + 1 }))
    .filter(({ document: { contents, errors } }) => errors.length > 0 || !isEmpty(contents));
  return documents.map(({ document, number }) => ({
    ...(documents.length > 1 && { number }),
    ...plainDocument(document, lines),
  }));
}

/** The beginning of a fault in a file of several documents. */
export function shownDocument(number: number | undefined): string {
  return number === undefined ? "" : `document ${number}: `;
}

interface Composed {
  readonly contents: Node | null;
  readonly errors: readonly YAMLError[];
}

function plainDocument({ contents, errors: [error] }: Composed, lines: LineCounter) {
  if (error !== undefined) return { fault: syntaxFault(error, place(lines, error.pos[0])) };
  try {
    return { value: plain(contents, "") };
  } catch (error) {
    if (!(error instanceof UnusableNode)) throw error;
    const { message, offset, cure } = error;
    return { fault: `${message}${place(lines, offset)}: ${cure}.` };
  }
}

function place(lines: LineCounter, offset: number): string {
  const { line, col } = lines.linePos(offset);
  return ` at line ${line}, column ${col}`;
}

/** A wildcard without quotes is an alias. */
const ALIAS_CURE = "write the value out, and in quotes if it begins with *";

class UnusableNode extends Error {
  readonly cure: string;
  readonly offset: number;

  constructor(path: string, message: string, cure: string, node: unknown) {
    super(`${path === "" ? "the document" : path} ${message}`);
    this.cure = cure;
    this.offset = (node as Node | null)?.range?.[0] ?? 0;
  }
}

function plain(node: Node | null, path: string): PlainValue {
  if (node === null) return "";
  if (isScalar(node)) return String(node.value);
  if (isSeq(node)) return node.items.map((item, index) => plain(item as Node, `${path}[${index}]`));
  if (!isMap(node)) throw new UnusableNode(path, "is an alias (*name), which is not expanded", ALIAS_CURE, node);
  const keys = new Set<string>();
  const entries = node.items.map(({ key, value }): [string, PlainValue] => {
    if (!isScalar(key))
      throw new UnusableNode(path, "has a list or a mapping as a key", 'write "key: value" lines', key);
    const name = String(key.value);
    const at = `${path}${path === "" ? "" : "."}${printable(name, 60)}`;
    if (keys.has(name)) throw new UnusableNode(at, "is there twice", "leave one of them", key);
    keys.add(name);
    return [name, plain(value as Node | null, at)];
  });
  return Object.fromEntries(entries);
}

/** The values of the keys in a text of one YAML mapping, or its fault as a sentence. */
export function yamlValues(text: string): { readonly values: PlainMapping; readonly fault?: string } {
  const [document, another] = yamlDocuments(text);
  if (document === undefined) return { values: {} };
  const { value, fault } = document;
  if (fault !== undefined) return { values: {}, fault };
  if (another !== undefined) return { values: {}, fault: 'it holds several documents ("---"), and one is expected.' };
  if (typeof value === "object" && !Array.isArray(value)) return { values: value as PlainMapping };
  return { values: {}, fault: 'expected "option: value" lines, such as "uds-name: /run/culvert.sock".' };
}

/** A document without content. */
function isEmpty(node: Node | null): boolean {
  return node === null || (isScalar(node) && node.value === "");
}

const TOO_DEEP = "it is nested too deeply.";
/** Maximum nesting. Options need two levels; a few more let a fault name its key. */
const MAX_DEPTH = 8;

/** Whether the text is nested more deeply than any configuration needs. It does not recurse itself. */
function isDeep(documents: readonly CST.Token[]): boolean {
  let level = documents.flatMap((token) => (token.type === "document" ? (token.value ?? []) : []));
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((token) => ("items" in token ? token.items.flatMap(partsOf) : []));
  }
  return false;
}

function partsOf({ key, value }: { readonly key?: CST.Token | null; readonly value?: CST.Token }): CST.Token[] {
  return [key, value].filter((token) => token != null);
}

/** A fault of the syntax with its place and a cure, because the parser uses words of the YAML specification. */
function syntaxFault({ code, message }: YAMLError, place: string): string {
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
