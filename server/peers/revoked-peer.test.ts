import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { crlOf } from "../../shared/pki/testing/certificates.ts";
import { agentOf, fetchText, pki, type TestServer } from "../testing/server.ts";
import { ask, Fleet, linesOf, peerLeaf } from "./testing/fleet.ts";

const reasons = (server: TestServer, message: string) => linesOf(server, message).map((line) => String(line["reason"]));

const certificateOf = (cn: string) => pki.ca.issue(peerLeaf(cn));

/** Two servers, the first of which goes to the second; `by` reads CRLs. */
async function world(fleet: Fleet, by: "srv-1" | "srv-2") {
  const clientCrlFile = join(pki.folder, "peers.crl");
  await writeFile(clientCrlFile, await crlOf(pki.ca, []));
  const [nearCertificate, farCertificate] = [await certificateOf("srv-1"), await certificateOf("srv-2")];
  const reads = (id: string) => (id === by ? { clientCrlFile } : {});
  const near = await fleet.start("srv-1", { agentWaitMs: 0, ...reads("srv-1") }, nearCertificate);
  const far = await fleet.start("srv-2", reads("srv-2"), farCertificate);
  await agentOf(far, { agentId: "blue" });
  await fleet.holders("srv-2");
  const open = await ask(near);
  assert.match(open.status, /^HTTP\/1\.1 200 /);
  const revoke = async (...revoked: readonly { readonly cert: string }[]) => {
    // Replaced as a tool that fetches CRLs does it.
    await writeFile(`${clientCrlFile}.new`, await crlOf(pki.ca, revoked));
    await rename(`${clientCrlFile}.new`, clientCrlFile);
  };
  return { near, far, open, revoke, nearCertificate, farCertificate };
}

test("the link to a server whose certificate is revoked ends at once with its streams, and no other is opened", async () => {
  await using fleet = new Fleet();
  const { near, open, revoke, farCertificate } = await world(fleet, "srv-1");
  await revoke(farCertificate);
  await until(() => open.socket.destroyed && reasons(near, "peer link lost").length > 0);
  assert.deepEqual(reasons(near, "peer link lost"), ["its certificate is revoked"]);
  assert.match((await ask(near)).status, /^HTTP\/1\.1 502 server "srv-2" cannot be reached/);
  assert.match(reasons(near, "peer not reached").at(-1) ?? "", /its certificate is revoked/);
});

test("the link from a server whose certificate is revoked ends at once with its streams, and it is refused", async () => {
  await using fleet = new Fleet();
  const { near, far, open, revoke, nearCertificate } = await world(fleet, "srv-2");
  await revoke(nearCertificate);
  await until(() => open.socket.destroyed && reasons(far, "peer link lost").length > 0);
  assert.deepEqual(reasons(far, "peer link lost"), ["its certificate is revoked"]);
  assert.match((await ask(near)).status, /^HTTP\/1\.1 502 server "srv-2" cannot be reached/);
  assert.match(reasons(far, "peer refused").at(-1) ?? "", /the client certificate is revoked/);
});

test("a server whose own certificate is revoked says so, and a CRL of its peers' CA is no unknown one", async () => {
  await using fleet = new Fleet();
  const { other } = pki;
  const own = await other.issue(peerLeaf("srv-1"));
  const [clientCrlFile, peerCaCert] = [join(pki.folder, "own.crl"), join(pki.folder, "other.pem")];
  await writeFile(clientCrlFile, await crlOf(other, [own]));
  await writeFile(peerCaCert, other.cert);
  const server = await fleet.start("srv-1", { clientCrlFile, peerCaCert }, own);
  const { text } = await fetchText(server.addresses.admin?.port, "/readyz?verbose");
  assert.match(text, /peer-certificate.*is revoked \(--client-crl-file\)/);
  assert.ok(server.lines.some(({ level, msg }) => level === "error" && msg.includes("--peer-cert is revoked")));
  assert.doesNotMatch(text, /signed by none of the CAs/);
  assert.ok(!server.lines.some(({ msg }) => msg.includes("signed by none of the CAs")));
});
