import type { Schema, Value } from "./values-file.ts";

/**
 * Values that templates fill in for an empty key (null), which helm takes as "not there". Maps hold the values below
 * them; each value is in a list of its own, so that maps of which users choose the keys are told apart.
 */
export function defaultsOf(values: readonly Value[]): Schema {
  return Object.fromEntries(
    values.map(({ key, children, default: value }) => [key, children.length > 0 ? defaultsOf(children) : [value]]),
  );
}
