import type { Facts } from "../server/operators/facts.ts";
import { visible } from "./text.ts";

/** The facts after a message: those that are `null` in it are gone. Texts may come from agents. */
export function withChanges(before: Facts, message: string): Facts {
  const after = new Map(Object.entries(before));
  const changes = JSON.parse(message, (_key, value) => (typeof value === "string" ? visible(value) : value));
  for (const [key, fact] of Object.entries(changes)) {
    if (fact === null) after.delete(key);
    else after.set(key, fact);
  }
  return Object.fromEntries(after);
}
