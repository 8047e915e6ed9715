import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Authority } from "../../shared/pki/certificates.ts";
import { readCredentials } from "./credentials.ts";

/** The files of an agent, and how to write them anew. */
async function credentialFiles(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create("ca");
  const files = { caCert: join(dir, "ca.crt"), agentCert: join(dir, "agent.crt"), agentKey: join(dir, "agent.key") };
  const renew = async () => {
    const { cert, key } = await authority.issue({ cn: "agent", usage: "client" });
    await Promise.all([writeFile(files.agentCert, cert), writeFile(files.agentKey, key)]);
    return { cert, key };
  };
  await writeFile(files.caCert, authority.cert);
  return { files, renew, ca: authority.cert };
}

test("credential files are read again at each call; what is not given stays out", async (t) => {
  const { files, renew, ca } = await credentialFiles(t);
  for (let i = 0; i < 2; i++) {
    const renewed = await renew();
    const { notAfter, ...read } = readCredentials(files);
    assert.deepEqual(read, { ca, ...renewed });
    assert.ok(notAfter && notAfter > new Date());
  }
  assert.deepEqual(readCredentials({ ...files, agentCert: "", agentKey: "" }), { ca });
});

test("a file that cannot be used is named with its flag, and never shown", async (t) => {
  const { files, renew } = await credentialFiles(t);
  const { key } = await renew();
  const sentence = (change: Partial<typeof files>): string => {
    try {
      readCredentials({ ...files, ...change });
    } catch (error) {
      return (error as Error).message;
    }
    throw new Error("they were read");
  };
  assert.match(sentence({ agentKey: "/nowhere/agent.key" }), /^--agent-key: .*\/nowhere\/agent\.key cannot be read/);
  assert.match(sentence({ caCert: files.agentKey }), /^--ca-cert: .*agent\.key holds no PEM certificate/);
  assert.match(sentence({ agentCert: files.agentKey }), /^--agent-cert: .*agent\.key holds no PEM certificate/);
  assert.match(sentence({ agentCert: files.caCert }), /^--agent-key: .*agent\.key does not belong to .*ca\.crt$/);
  assert.match(sentence({ agentKey: "" }), /^--agent-cert: .* needs its private key/);
  const secret = key.split("\n")[1] ?? assert.fail();
  for (const change of [{ caCert: files.agentKey }, { agentCert: files.agentKey }]) {
    assert.ok(!sentence(change).includes(secret));
  }
});
