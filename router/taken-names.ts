import type { Route } from "./routes.ts";

/** A name, exact or a wildcard, and the route in a file that has it. */
export interface TakenName {
  readonly name: string;
  readonly path: string;
  readonly route: Route;
}

/** Names of routes, by what overlaps them: two names overlap if one server name can match both. */
export class NamesTaken {
  readonly #byName = new Map<string, TakenName[]>();
  /** By a wildcard, whether or not somebody has it, the names under it. */
  readonly #under = new Map<string, TakenName[]>();

  constructor(names: readonly TakenName[] = []) {
    for (const name of names) this.add(name);
  }

  add(taken: TakenName): void {
    append(this.#byName, taken.name, taken);
    for (const wildcard of wildcardsOver(taken.name)) append(this.#under, wildcard, taken);
  }

  /** The first that counts and overlaps this name. */
  overlapping(name: string, counts: (taken: TakenName) => boolean): TakenName | undefined {
    for (const same of [name, ...wildcardsOver(name)]) {
      const found = this.#byName.get(same)?.find(counts);
      if (found !== undefined) return found;
    }
    return this.#under.get(name)?.find(counts);
  }
}

function append(lists: Map<string, TakenName[]>, key: string, taken: TakenName): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [taken]);
  else list.push(taken);
}

/** All wildcards that stand for this name, or for every name that this wildcard stands for. */
function wildcardsOver(name: string): string[] {
  const wildcards: string[] = [];
  for (let dot = name.indexOf(".", name.startsWith("*") ? 2 : 0); dot >= 0; dot = name.indexOf(".", dot + 1)) {
    wildcards.push(`*${name.slice(dot)}`);
  }
  return wildcards;
}
