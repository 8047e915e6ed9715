import assert from "node:assert/strict";
import { Session } from "node:inspector/promises";
import { test } from "node:test";
import { loadedWith } from "../shared/runtime/testing/loaded-with.ts";
import { agentOf, start } from "./testing/server.ts";

test("nothing that serves a fleet is loaded with a server: it costs no memory without a directory", () => {
  const loaded = loadedWith("server/server.ts");
  assert.ok(loaded.includes("server/other-servers.ts"), "the walk has found the files");
  assert.deepEqual(
    loaded.filter((file) => /nats|server.peers./.test(file)),
    [],
  );
});

test("nothing of the audit trail is loaded with a server: it costs nothing without --audit-log", () => {
  const loaded = loadedWith("server/server.ts");
  assert.deepEqual(
    loaded.filter((file) => file.startsWith("server/audit/")),
    [],
  );
});

test("nothing that Konnectivity's agents need is loaded with a server, before the first of them comes", () => {
  const loaded = loadedWith("server/server.ts");
  assert.deepEqual(
    loaded.filter((file) => /konnectivity|bufbuild/.test(file)),
    [],
  );
});

test("nothing of the status page is loaded with a server, before the first request for it", () => {
  const loaded = loadedWith("server/server.ts");
  assert.ok(loaded.includes("server/operators/traffic-history.ts"), "what it will show is kept");
  assert.deepEqual(
    loaded.filter((file) => /operators.(page|feed)|@fastify.static/.test(file)),
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
