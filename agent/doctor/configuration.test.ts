import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Authority } from "../../shared/pki/certificates.ts";
import { readConfiguration } from "./configuration.ts";

const DAY = 86_400_000;
const NONE = {
  caCert: "",
  agentCert: "",
  agentKey: "",
  serviceAccountTokenPath: "",
  outerCa: "",
  proxyCredentialsFile: "",
  proxyCa: "",
  proxyCert: "",
  proxyKey: "",
};

/** Writes files of these names, and says where they are. */
async function filesIn(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  return async (name: string, content: string) => {
    await writeFile(join(dir, name), content);
    return join(dir, name);
  };
}

test("all that is wrong with the files is found, and the steps go on", async (t) => {
  const file = await filesIn(t);
  const authority = await Authority.create("ours", -1);
  const { cert, key } = await authority.issue({ cn: "agent", usage: "client", notAfter: new Date(Date.now() - DAY) });
  const { value, detail, finding, others } = await readConfiguration({
    ...NONE,
    caCert: await file("ca.crt", authority.cert),
    agentCert: await file("agent.crt", cert),
    agentKey: await file("agent.key", key),
    proxyCredentialsFile: await file("proxy", "no-colon-and-secret"),
    proxyCa: await file("proxy.crt", ""),
  });
  assert.equal(value.cert, cert);
  assert.deepEqual(
    [finding, ...(others ?? [])].map((found) => found?.culprit),
    ["agent_expired", "ca_expired", "configuration", "configuration"],
  );
  assert.match(detail, /; server CA CN=ours, expired on \d{4}-.*; --proxy-credentials-file \S+proxy has no colon/);
  assert.match(detail, /; --proxy-ca: the CA certificate \S+proxy\.crt holds no PEM certificate/);
  assert.doesNotMatch(detail, /secret/);
});

test("a CA that has ended beside one that has come in its place is no fault", async (t) => {
  const file = await filesIn(t);
  const [old, young] = [await Authority.create("old", -1), await Authority.create("young")];
  const caCert = await file("ca.crt", `${old.cert}${young.cert}`);
  const { finding, others } = await readConfiguration({ ...NONE, caCert });
  assert.deepEqual([finding?.culprit, others], ["no_credential", undefined], "nothing else");
});
