import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readCredentials } from "./credentials.ts";

test("credential files are read again at each call; what is not given stays out", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const agentCert = join(dir, "agent.crt");
  await writeFile(agentCert, "one");
  assert.deepEqual(await readCredentials({ caCert: "", agentCert, agentKey: "" }), { cert: Buffer.from("one") });
  await writeFile(agentCert, "two");
  assert.deepEqual(await readCredentials({ caCert: "", agentCert, agentKey: "" }), { cert: Buffer.from("two") });
});

test("a file that cannot be read is named with its flag, and never shown", async () => {
  const missing = { caCert: "", agentCert: "", agentKey: "/nowhere/agent.key" };
  await assert.rejects(readCredentials(missing), /--agent-key .*\/nowhere\/agent\.key: ENOENT/);
});
