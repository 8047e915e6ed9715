import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { folderOf } from "../../shared/documents/testing/files.ts";
import { HttpsStub, never } from "../../shared/kubernetes/testing/https-stub.ts";
import { createVerifier } from "../tokens/create-verifier.ts";
import { captureLog, ISSUER, Issuer, SUBJECT } from "../tokens/testing/tokens.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";

test("an issuer's keys come from a URL whose CA stands beside the document", async (t) => {
  const issuer = await Issuer.create();
  const stub = await HttpsStub.start(t);
  const body = await issuer.keySet();
  stub.answer = () => ({ status: 200, body });
  const folder = folderOf(t);
  writeFileSync(join(folder, "issuer-ca.crt"), stub.authority.cert);
  const text = (jwksCa: string) =>
    `name: blue\nagents:\n  token: {jwt: {issuer: "${ISSUER}", audience: culvert, jwks: "${stub.url}/keys", ${jwksCa}subjects: ["${SUBJECT}"]}}`;
  const verified = async (jwksCa: string) => {
    const loaded = parseClusterFile(join(folder, "blue.yaml"), text(jwksCa), new MaterialFiles()).load();
    assert.deepEqual(loaded.faults, []);
    const token = loaded.documents[0]?.agents.token ?? assert.fail("no token");
    const verifier = createVerifier(token, captureLog().log, () => {});
    t.after(() => verifier.close());
    return Object.keys(await verifier.verify(await issuer.token(), { signal: never() }))[0];
  };
  assert.equal(await verified("jwksCa: issuer-ca.crt, "), "ok");
  assert.equal(await verified(""), "unavailable", "Node's own authorities do not know that CA");
});

test("a fault of one document among several says which and where, empty ones counted", () => {
  const told = (text: string) => parseClusterFile("/c.yaml", text, new MaterialFiles()).load().faults;
  assert.deepEqual(told("name: [blue\n"), [
    "Flow sequence in block collection must be sufficiently indented and end with a ] at line 2, column 1: indent it as its neighbours, and close what [ or { has opened.",
  ]);
  assert.match(told("name: blue\n---\n# none\n---\nname: [red\n")[0] ?? "", /^document 3: Flow .* at line 6, column 1/);
  assert.match(told("name: blue\n---\nnam: red\n")[1] ?? "", /^document 2: the document has no key "nam"/);
});

test("every file of a document that cannot be read is told at once", (t) => {
  const folder = folderOf(t);
  const files = "cert: a.crt, key: a.key, ca: ca.crt, crl: ca.crl";
  const text = `name: blue\nagents: {${files}}\ncallers: {${files}}\n`;
  const { faults } = parseClusterFile(join(folder, "blue.yaml"), text, new MaterialFiles()).load();
  assert.deepEqual(
    faults.map((fault) => /^\w+\.\w+/.exec(fault)?.[0]),
    ["agents.cert", "agents.ca", "agents.crl", "callers.cert", "callers.ca", "callers.crl"],
  );
});
