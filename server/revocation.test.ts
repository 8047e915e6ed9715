import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import type { CertificateAndKey } from "../shared/pki/certificates.ts";
import { certificateOf, crlOf } from "../shared/pki/testing/certificates.ts";
import { agentOf, CONNECT, callerOf, fetchText, pki, start, within } from "./testing/server.ts";
import { agentAt, answerOf, callerAt, OpenCaller, type Tenant, Tenants } from "./testing/tenants.ts";

/** Replaced as a tool that fetches CRLs does it. */
async function replace(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await rename(`${path}.new`, path);
}

/** A further client of a cluster, with a certificate of its own. */
const clientOf = (tenant: Tenant, role: "agents" | "callers", cn: string) =>
  tenant.authority.issue({ cn, o: [`${role}:${tenant.name}`], usage: "client" });

test("a CRL in a document ends the tunnel and the CONNECTs of what it revokes and refuses them from then on; a broken one changes nothing", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  const crl = join(tenants.folder, "blue.crl");
  await replace(crl, await crlOf(blue.authority, []));
  await blue.write({ agents: { crl: "blue.crl" }, callers: { crl: "blue.crl" } });
  const server = await tenants.start();
  const badAgent = await clientOf(blue, "agents", "bad-agent");
  const badCaller = await clientOf(blue, "callers", "bad-caller");
  const bad = await agentAt(server, undefined, { at: blue, by: badAgent, agentId: "bad" });
  const leaving = await OpenCaller.open(await callerAt(server, blue.sni, badCaller));
  // Only the CONNECT that goes through the agent that stays can stay.
  const good = await agentAt(server, undefined, { at: blue, by: blue.agent, agentId: "good" });
  const bystanders = [];
  for (let opened = 0; opened < 2; opened++) {
    bystanders.push(await OpenCaller.open(await callerAt(server, blue.sni, blue.caller)));
  }
  const overGood = () => good.session.streamCount;
  await until(() => overGood() > 0);

  await replace(crl, await crlOf(blue.authority, [badAgent, badCaller]));
  await within(bad.closed, "the end of the tunnel");
  await within(leaving.closed, "the reset");
  assert.match(String(server.lines.find(({ msg }) => msg === "tunnel lost")?.["reason"]), /certificate is revoked$/);
  const staying = bystanders.filter(({ isClosed }) => !isClosed);
  assert.ok(staying.length > 0 && good.session.closed === false);
  for (const open of staying) await open.echo("after");

  const refusal = /^HTTP\/1\.1 407 the client certificate is revoked\r\n/;
  assert.match(await answerOf(await callerAt(server, blue.sni, badCaller)), refusal);
  await assert.rejects(agentAt(server, undefined, { at: blue, by: badAgent, agentId: "bad" }), (error) => {
    const { status, reason } = error as { status?: number; reason?: string };
    assert.deepEqual([status, reason], [401, "the client certificate is revoked"]);
    return true;
  });

  await replace(crl, "-----BEGIN X509 CRL-----\nbroken\n-----END X509 CRL-----\n");
  await until(() => server.lines.some(({ msg }) => msg.startsWith("a cluster file cannot be used")));
  const fault = server.lines.find(({ msg }) => msg.startsWith("a cluster file cannot be used"));
  assert.match(
    String(fault?.["reason"]),
    /^(agents|callers)\.crl: the CRL file .*blue\.crl is not usable: CRL 1 in it is/,
  );
  assert.match(await answerOf(await callerAt(server, blue.sni, badCaller)), refusal);
  for (const open of staying) await open.echo("at the end");
});

test("--client-crl-file is for both ports; it ends what a new one revokes, and a broken one keeps the old in use", async () => {
  const crl = join(pki.folder, "clients.crl");
  const bad = await pki.ca.issue({ cn: "bad", usage: "client" });
  await replace(crl, (await crlOf(pki.other, [])) + (await crlOf(pki.ca, [])));
  await using server = await start({ clientCrlFile: crl });
  const leavingAgent = await agentOf(server, { agentId: "bad", by: bad });
  const leaving = await OpenCaller.open(await callerOf(server, bad));
  await replace(crl, "nothing");
  await until(() => server.lines.some(({ msg }) => msg === "a new CRL file is not usable, the old one stays"));
  const readyz = () => fetchText(server.addresses.admin?.port, "/readyz?verbose");
  assert.match((await readyz()).text, /--client-crl-file: the CRL file .* holds no PEM CRL .*the old one stays in use/);
  await leaving.echo("still here");
  await replace(crl, await crlOf(pki.ca, [bad]));
  await within(leavingAgent.closed, "the end of the tunnel");
  await within(leaving.closed, "the reset");
  assert.equal((await leaving.closed)?.code, "ECONNRESET");
  await assert.rejects(agentOf(server, { agentId: "bad", by: bad }), { status: 401 });
  await agentOf(server);
  const staying = await OpenCaller.open(await callerOf(server, pki.caller));
  await replace(crl, await crlOf(pki.ca, [bad, pki.server]));
  await until(() => server.lines.filter(({ msg }) => msg === "CRLs were read again").length === 2);
  await staying.echo("not meant");
  await until(async () => !(await readyz()).text.includes("--client-crl-file")); // it is made once a second
});

test("a CRL that is too old is warned of in time, then refuses newcomers of its CA, and ends nothing that is open", async () => {
  const crl = join(pki.folder, "old.crl");
  const [thisUpdate, nextUpdate] = [new Date(Date.now() - 60_000), new Date(Date.now() + 2_000)];
  await replace(crl, (await crlOf(pki.ca, [], { thisUpdate, nextUpdate })) + (await crlOf(pki.other, [])));
  await using server = await start({ clientCrlFile: crl });
  await agentOf(server);
  const open = await OpenCaller.open(await callerOf(server, pki.caller));
  const warned = (words: RegExp) => () => server.lines.some(({ msg, level }) => level === "warn" && words.test(msg));
  await until(warned(/^CRL 1 of --client-crl-file \(.*old\.crl\) expires on .*: replace it$/));
  await until(warned(/^CRL 2 of --client-crl-file .* is signed by none of the CAs there/));
  await until(() => Date.now() > nextUpdate.getTime() + 1_000);
  const { text } = await fetchText(server.addresses.admin?.port, "/readyz?verbose");
  assert.match(text, /warning: CRL 1 of --client-crl-file .* expired on .* refused until there is a new one/);
  const said = await answerOf(await callerOf(server, pki.caller), CONNECT);
  assert.match(said, /^HTTP\/1\.1 407 .* cannot be accepted, because the CRL of its CA has expired/);
  await assert.rejects(agentOf(server, { agentId: "b" }), { status: 401 });
  await open.echo("still here");
  await replace(crl, await crlOf(pki.ca, []));
  await until(() => server.lines.some(({ msg }) => msg === "CRLs were read again"));
  await agentOf(server, { agentId: "b" });
});

test("a file of CRLs that is not usable ends the start with the flag and the reason", async () => {
  await assert.rejects(
    start({ clientCrlFile: join(pki.folder, "ca.pem") }),
    /--client-crl-file: .*ca\.pem holds no PEM CRL/,
  );
});

test("a CA in the middle that a client brings along: its clients go when it is revoked, and a chain has its bound", async () => {
  const root = await certificateOf({ cn: "root" });
  const [middle, other] = [
    await certificateOf({ cn: "middle", by: root }),
    await certificateOf({ cn: "other", by: root }),
  ];
  const clientBy = async (ca: CertificateAndKey): Promise<CertificateAndKey> => {
    const leaf = await certificateOf({ cn: "client", isCa: false, by: ca });
    return { cert: leaf.cert + ca.cert, key: leaf.key };
  };
  const [serverCaCert, crl] = [join(pki.folder, "root.pem"), join(pki.folder, "root.crl")];
  await writeFile(serverCaCert, root.cert);
  await replace(crl, await crlOf(root, []));
  await using server = await start({ serverCaCert, clientCrlFile: crl });
  await agentOf(server);
  const leaving = await OpenCaller.open(await callerOf(server, await clientBy(middle)));
  const staying = await OpenCaller.open(await callerOf(server, await clientBy(other)));
  await replace(crl, await crlOf(root, [middle]));
  assert.equal((await within(leaving.closed, "the reset"))?.code, "ECONNRESET");
  await staying.echo("after");
  assert.match(await answerOf(await callerOf(server, await clientBy(middle))), /^HTTP\/1\.1 407 .* is revoked/);
  const long = await certificateOf({ cn: "long", by: root, padding: 33 * 1024 });
  const said = await answerOf(await callerOf(server, await clientBy(long)));
  assert.match(said, /^HTTP\/1\.1 407 the client certificate and what came with it are longer than 32 KiB/);
});
