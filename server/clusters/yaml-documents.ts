import { Composer, isMap, isScalar, isSeq, type Node, Parser, type YAMLError } from "yaml";
import { printable } from "../../shared/outcomes.ts";
import { isDeep } from "../../shared/process/yaml-entries.ts";

/** Scalars are the text that was written, as on the command line; mappings and lists of them. */
export type PlainValue = string | readonly PlainValue[] | { readonly [key: string]: PlainValue };

/** One document of a file, or what is wrong with it as a sentence. */
export type PlainDocument =
  | { readonly value: PlainValue; readonly fault?: undefined }
  | { readonly value?: undefined; readonly fault: string };

/**
 * The YAML documents in a text. Bounded for any text: what is nested is refused before the composer follows it down the
 * stack, and no alias is unfolded. Empty documents are left out.
 */
export function yamlDocuments(text: string): PlainDocument[] {
  const tokens = [...new Parser().parse(text)];
  if (isDeep(tokens)) return [{ fault: "it is nested too deeply." }];
  const composed = new Composer({ schema: "failsafe", uniqueKeys: false }).compose(tokens, true, text.length);
  return [...composed].filter(({ contents, errors }) => errors.length > 0 || !isEmpty(contents)).map(plainDocument);
}

function isEmpty(contents: Node | null): boolean {
  return contents === null || (isScalar(contents) && contents.value === "");
}

function plainDocument(document: { contents: Node | null; errors: readonly YAMLError[] }): PlainDocument {
  const [error] = document.errors;
  if (error !== undefined) return { fault: `${error.message.split("\n")[0]?.replace(/:$/, "")}.` };
  try {
    return { value: plain(document.contents, "") };
  } catch (error) {
    if (error instanceof Unusable) return { fault: error.message };
    throw error;
  }
}

class Unusable extends Error {}

function plain(node: Node | null, path: string): PlainValue {
  if (node === null) return "";
  if (isScalar(node)) return String(node.value);
  if (isSeq(node)) return node.items.map((item, index) => plain(item as Node, `${path}[${index}]`));
  if (!isMap(node)) throw new Unusable(`${path}: aliases (*name) are not unfolded; write the value out.`);
  const keys = new Set<string>();
  const entries = node.items.map(({ key, value }): [string, PlainValue] => {
    if (!isScalar(key)) throw new Unusable(`${path}: a key is a list or a mapping; write "key: value" lines.`);
    const name = String(key.value);
    const at = `${path}${path === "" ? "" : "."}${printable(name, 60)}`;
    if (keys.has(name)) throw new Unusable(`${at} is there twice; leave one of them.`);
    keys.add(name);
    return [name, plain(value as Node | null, at)];
  });
  return Object.fromEntries(entries);
}
