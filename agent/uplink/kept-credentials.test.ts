import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { Authority } from "../../shared/pki/certificates.ts";
import { KeptCredentials } from "./kept-credentials.ts";

/** An agent's credentials, what they say to the log, and how to write the files. */
async function kept(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create("ca");
  const [caCert, agentCert, agentKey] = [join(dir, "ca.crt"), join(dir, "agent.crt"), join(dir, "agent.key")];
  await writeFile(caCert, authority.cert);
  const lines: { readonly level: number; readonly msg: string; readonly reason?: string }[] = [];
  const log = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  const issue = async (validity: { readonly notBefore?: Date; readonly notAfter?: Date } = {}): Promise<string> => {
    const { cert, key } = await authority.issue({ cn: "agent", usage: "client", ...validity });
    await writeFile(agentCert, cert);
    await writeFile(agentKey, key);
    return cert;
  };
  const credentials = new KeptCredentials({ caCert, agentCert, agentKey, serviceAccountTokenPath: "" }, log);
  return { credentials, lines, issue, agentCert };
}

test("while a new certificate cannot be used the old one is shown, and that is said once", async (t) => {
  const { credentials, lines, issue, agentCert } = await kept(t);
  const old = await issue();
  assert.equal(credentials.current().cert, old);
  await writeFile(agentCert, "");
  for (let attempt = 0; attempt < 5; attempt++) assert.equal(credentials.current().cert, old);
  assert.deepEqual([lines.length, lines[0]?.level], [1, 50]);
  assert.equal(lines[0]?.msg, "new credentials are not usable, the old ones stay");
  assert.match(lines[0]?.reason ?? "", /^--agent-cert: .*agent\.crt holds no PEM certificate/);
  assert.equal(credentials.refresh(), false);

  const renewed = await issue();
  assert.equal(credentials.refresh(), true);
  assert.equal(credentials.current().cert, renewed);
  await writeFile(agentCert, "");
  assert.equal(credentials.current().cert, renewed);
  assert.equal(lines.length, 2, "another fault is said again");
});

test("an old certificate that has expired is not shown: the fault of the new one is told", async (t) => {
  const { credentials, lines, issue, agentCert } = await kept(t);
  await issue({ notAfter: new Date(Math.floor(Date.now() / 1_000) * 1_000 - 60_000) });
  credentials.current();
  await writeFile(agentCert, "");
  assert.throws(() => credentials.current(), /^Error: --agent-cert: .*holds no PEM certificate/);
  assert.equal(lines[0]?.msg, "new credentials are not usable, the old ones have expired");
});

test("a new certificate that has expired already does not take the place of one that has not", async (t) => {
  const { credentials, lines, issue } = await kept(t);
  const old = await issue();
  credentials.current();
  await issue({ notAfter: new Date(Date.now() - 60_000) });
  assert.equal(credentials.refresh(), false);
  assert.equal(credentials.current().cert, old);
  assert.deepEqual([lines.length, lines[0]?.msg], [1, "new credentials are not usable, the old ones stay"]);
  assert.match(lines[0]?.reason ?? "", /^the certificate or token in the files ended on \d{4}-/);
});

test("a new certificate that is not valid yet is taken when its time comes, and not before", async (t) => {
  const { credentials, lines, issue } = await kept(t);
  const old = await issue();
  credentials.current();
  const notBefore = inSeconds(3_600);
  const early = await issue({ notBefore });
  for (let look = 0; look < 3; look++) {
    assert.equal(credentials.refresh(), false);
    assert.equal(credentials.current().cert, old);
  }
  assert.deepEqual([lines.length, lines[0]?.msg], [1, "new credentials are not usable, the old ones stay"]);
  const said = `the certificate in the files is not valid before ${notBefore.toISOString()}: from then on it is used`;
  assert.equal(lines[0]?.reason, said);

  t.mock.timers.enable({ apis: ["Date"], now: notBefore });
  assert.equal(credentials.refresh(), true);
  assert.equal(credentials.current().cert, early);
  assert.equal(lines.length, 1);
});

test("a new certificate that is not valid yet is shown where the old one is not valid either", async (t) => {
  for (const validity of [{ notAfter: inSeconds(-60) }, { notBefore: inSeconds(60) }]) {
    const { credentials, issue, agentCert } = await kept(t);
    await issue(validity);
    credentials.current();
    const early = await issue({ notBefore: inSeconds(3_600) });
    assert.equal(credentials.current().cert, early);
    await writeFile(agentCert, "");
    assert.equal(credentials.current().cert, early, "a server's clock may be ahead: it stays for want of another");
  }
});

test("files that could never be used are the caller's to tell", async (t) => {
  const { credentials, lines } = await kept(t);
  assert.throws(() => credentials.current(), /^Error: --agent-cert: .*cannot be read/);
  assert.equal(lines.length, 0);
});

/** From now, as a certificate has it: without fractions. */
function inSeconds(seconds: number): Date {
  return new Date((Math.floor(Date.now() / 1_000) + seconds) * 1_000);
}
