import { Composer, isMap, isScalar, isSeq, LineCounter, type Node, Parser, type YAMLError } from "yaml";
import { printable } from "../outcomes.ts";
import { isDeep, syntaxFault } from "./yaml-entries.ts";

/** A value whose scalars are the text that was written, as on the command line. */
export type PlainValue = string | readonly PlainValue[] | { readonly [key: string]: PlainValue };

/** One document of a file, or its fault as a sentence. */
export type PlainDocument = {
  /** Present in a file of several documents; the first is 1. */ readonly number?: number;
} & (
  | { readonly value: PlainValue; readonly fault?: undefined }
  | { readonly value?: undefined; readonly fault: string }
);

/**
 * The YAML documents of a text. Its cost is bounded for any text: deep nesting is refused before the composer recurses,
 * and aliases are not expanded. Empty documents are left out, but counted.
 */
export function yamlDocuments(text: string): PlainDocument[] {
  const lines = new LineCounter();
  const tokens = [...new Parser(lines.addNewLine).parse(text)];
  if (isDeep(tokens)) return [{ fault: "it is nested too deeply." }];
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

function isEmpty(contents: Node | null): boolean {
  return contents === null || (isScalar(contents) && contents.value === "");
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
