import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { agentOf, start } from "./testing/server.ts";

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

/** The URLs of all scripts that this process has compiled. */
async function loadedNow(): Promise<readonly string[]> {
  const urls: string[] = [];
  const inspector = new Session();
  inspector.connect();
  inspector.on("Debugger.scriptParsed", ({ params: { url } }) => urls.push(url));
  await inspector.post("Debugger.enable");
  inspector.disconnect();
  return urls;
}

test("a server without a directory that has an agent has loaded nothing of a fleet, not later either", async () => {
  await using server = await start();
  await agentOf(server);
  const loaded = await loadedNow();
  assert.ok(
    loaded.some((url) => /server\/other-servers\.[jt]s$/.test(url)),
    "the inspector has named the files",
  );
  assert.deepEqual(
    loaded.filter((url) => /server\/peers\/|@nats-io/.test(url)),
    [],
  );
});
