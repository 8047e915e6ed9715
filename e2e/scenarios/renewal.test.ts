import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { agentFiles, serverFiles } from "../harness/pki-files.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

function write({ cert, key }: CertificateAndKey, certFile: string, keyFile: string): void {
  writeFileSync(keyFile, key);
  writeFileSync(certFile, cert);
}

test("an agent whose certificate is renewed opens a new connection with it, and its streams notice nothing", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], log });
  await using steadyCaller = new SteadyCaller(await world.connect("echo"));
  const { agentCert, agentKey } = agentFiles(world.dir.path);
  const before = readFileSync(agentCert, "utf8");
  write(await world.pki.clusterAuthority.issue({ cn: "culvert-agent", usage: "client" }), agentCert, agentKey);
  assert.notEqual(readFileSync(agentCert, "utf8"), before);
  await waitFor(() => lines.some(({ msg }) => msg === "uplink moved to a new connection"), { deadlineMs: 10_000 });
  await steadyCaller.assertUnharmed();
  assert.ok(!lines.some(({ msg }) => msg === "tunnel suspended"), "the new connection came before the old one went");
});

test("an agent whose new certificate has another subject lets its old link end with its streams, and comes back as the new one", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], log, server: { agentWaitMs: 7_000 } });
  const before = await established(world.connect("echo"));
  const { agentCert, agentKey } = agentFiles(world.dir.path);
  write(await world.pki.clusterAuthority.issue({ cn: "renamed-agent", usage: "client" }), agentCert, agentKey);
  await waitFor(() => lines.some(({ msg }) => msg.startsWith("uplink begins anew")), { deadlineMs: 10_000 });
  await before.send("still here");
  assert.equal((await before.readBytes(10)).toString(), "still here");
  before.end();
  assert.equal(await before.readAll(), "");
  await using _after = await established(world.connect("echo"));
  const opened = lines.filter(({ msg }) => msg === "tunnel opened").map(({ identity }) => String(identity));
  assert.deepEqual([opened.length, opened.at(-1)?.includes("renamed-agent")], [2, true]);
});

test("a server whose certificates for agents change asks them for new connections", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], log });
  await using steadyCaller = new SteadyCaller(await world.connect("echo"));
  const { clusterCert, clusterKey } = serverFiles(world.dir.path);
  const names = ["localhost", "127.0.0.1"];
  write(await world.pki.clusterAuthority.issue({ cn: "server", names, usage: "server" }), clusterCert, clusterKey);
  await waitFor(() => lines.some(({ msg }) => msg === "tunnel moved"), { deadlineMs: 10_000 });
  await steadyCaller.assertUnharmed();
});

test("connections that get no older than a second: each is replaced before, and a stream sees none of it", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], log, agent: { maxCarrierAgeMs: 1_000 } });
  await using steadyCaller = new SteadyCaller(await world.connect("echo"));
  await waitFor(() => lines.filter(({ msg }) => msg === "tunnel moved").length >= 3, { deadlineMs: 15_000 });
  await steadyCaller.assertUnharmed();
  assert.ok(!lines.some(({ msg }) => msg === "tunnel suspended"));
});
