import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { ROOT } from "../shared/runtime/testing/project.ts";

/** Imports and exports of values; those of types are gone when the program runs. */
const STATIC_IMPORT = /^(?:import|export) (?!type\b)(?:[^"';]*? from )?"([^"]+)"/gm;

/** The files and packages that are loaded with this file, before anything is asked of it. */
function loadedWith(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const [, specifier = ""] of readFileSync(file, "utf8").matchAll(STATIC_IMPORT)) {
    if (specifier.startsWith(".")) loadedWith(join(dirname(file), specifier), seen);
    else seen.add(specifier);
  }
  return seen;
}

test("nothing that serves a fleet is loaded with a server: it costs no memory without a directory", () => {
  const loaded = [...loadedWith(join(ROOT, "server/server.ts"))].map((file) => relative(ROOT, file));
  assert.ok(loaded.includes("server/other-servers.ts"), "the walk has found the files");
  assert.deepEqual(
    loaded.filter((file) => /nats|server.peers./.test(file)),
    [],
  );
});
