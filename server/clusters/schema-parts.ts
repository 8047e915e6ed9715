import { z } from "zod";
import { nearest } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";

/** The kinds of values in a document whose scalars are text. Each message continues the path of its key. */

/** A mapping of known keys; of one that is unknown the nearest is named. */
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

/** One scalar, not empty. */
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

/** One scalar that becomes something else; `make` throws the sentence. */
export function made<T>(make: (value: string) => T) {
  return text().transform(orIssue(make));
}

export function list<T extends z.ZodType>(item: T) {
  return z.array(item, 'needs a list: lines with "- value", or [a, b]');
}

/** A step of a schema out of a function that throws a sentence. */
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
