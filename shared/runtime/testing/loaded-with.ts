import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { ROOT } from "./project.ts";

/** Imports and exports of values; those of types are gone when the program runs. */
const STATIC_IMPORT = /^(?:import|export) (?!type\b)(?:[^"';]*? from )?"([^"]+)"/gm;

/**
 * The files, from the folder of the project, and packages that are loaded with this file, before anything is asked of
 * it.
 */
export function loadedWith(file: string): string[] {
  const seen = new Set<string>();
  const packages = new Set<string>();
  walk(join(ROOT, file));
  return [...[...seen].map((path) => relative(ROOT, path)), ...packages];

  function walk(path: string): void {
    if (seen.has(path)) return;
    seen.add(path);
    for (const [, specifier = ""] of readFileSync(path, "utf8").matchAll(STATIC_IMPORT)) {
      if (specifier.startsWith(".")) walk(join(dirname(path), specifier));
      else packages.add(specifier);
    }
  }
}
