import * as z from "zod";
import { nearest } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import { type PlainValue, shownDocument, yamlDocuments } from "./yaml.ts";

// Schemas of documents whose scalars are text. Each message continues the path of its key.

/** A mapping of known keys. The message about an unknown one names the nearest. */
export function section<S extends z.core.$ZodLooseShape>(shape: S) {
  const known = Object.keys(shape);
  return z.strictObject(shape, {
    error: (issue) => {
      if (issue.code === "unrecognized_keys") return issue.keys.map((key) => unknownKey(key, known)).join("; ");
      return issue.code === "invalid_type" ? `needs "key: value" lines with keys of ${known.join(", ")}` : undefined;
    },
  });
}

function unknownKey(key: string, known: readonly string[]): string {
  const guess = nearest(key, known);
  const cure = guess === undefined ? `; known are ${known.join(", ")}` : ` (did you mean ${guess}?)`;
  return `has no key "${printable(key, 60)}"${cure}`;
}

/** One scalar that is not empty. */
export function text() {
  return (
    z
      .string({
        error: ({ input }) => (input === undefined ? "is missing" : "needs one value, not a list or a mapping"),
      })
      .min(1, "is empty: write a value, or leave the key out")
      // biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
      .regex(/^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$/, "holds a line break or a control character: leave it out")
  );
}

/** One scalar that `parse` turns into something else, or throws a sentence about. */
export function parsed<T>(parse: (value: string) => T) {
  return text().transform(orIssue(parse));
}

export function list<T extends z.ZodType>(item: T) {
  return z.array(item, 'needs a list: lines with "- value", or [a, b]');
}

/** Makes a step of a schema from a function that throws a sentence. */
export function orIssue<A, B>(make: (value: A) => B): (value: A, context: z.RefinementCtx) => B {
  return (input, { issues }) => {
    try {
      return make(input);
    } catch (error) {
      issues.push({ code: "custom", message: (error as Error).message, input });
      return z.NEVER;
    }
  };
}

type Validated<T> =
  | { readonly value: T; readonly faults?: undefined }
  | { readonly value?: undefined; readonly faults: readonly string[] };

/** The value of a document, or its faults as sentences that begin with the path of a key. */
export function validate<S extends z.ZodType>(schema: S, value: PlainValue): Validated<z.output<S>> {
  const result = schema.safeParse(value);
  if (result.success) return { value: result.data };
  return { faults: result.error.issues.map(({ path, message }) => `${shownPath(path)}${message}.`) };
}

function shownPath(path: readonly PropertyKey[]): string {
  if (path.length === 0) return "the document ";
  const steps = path.map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`));
  return `${printable(steps.join("").slice(1), 60)} `;
}

/** A document of a file by its schema, or its faults; `number` in a file of several. */
export type ValidatedDocument<T> = { readonly number?: number } & Validated<T>;

/** The YAML documents of a file. Documents without content are left out. */
export function validateDocuments<S extends z.ZodType>(schema: S, text: string): ValidatedDocument<z.output<S>>[] {
  return yamlDocuments(text).map(({ value, fault, ...number }) => ({
    ...number,
    ...(fault === undefined ? validate(schema, value) : { faults: [fault] }),
  }));
}

/** Maximum number of faults shown of one file. */
const MAX_FAULTS = 20;

/** The faults of documents, each with the number of its document in a file of several. */
export function faultsOf(
  documents: readonly { readonly number?: number; readonly faults?: readonly string[] | undefined }[],
) {
  const faults = documents.flatMap(({ number, faults = [] }) =>
    faults.map((fault) => `${shownDocument(number)}${fault}`),
  );
  return faults.slice(0, MAX_FAULTS);
}
