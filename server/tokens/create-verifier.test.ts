import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { folderOf } from "../../shared/documents/testing/files.ts";
import { never } from "../../shared/kubernetes/testing/https-stub.ts";
import type { TokenTrust } from "../clusters/document.ts";
import { createVerifier } from "./create-verifier.ts";
import { captureLog, ISSUER, Issuer, SUBJECT } from "./testing/tokens.ts";

test("what a cluster's document says becomes the verifier of its kind", async (t) => {
  const dir = folderOf(t);
  const issuer = await Issuer.create();
  const file = join(dir, "jwks.json");
  writeFileSync(file, JSON.stringify(await issuer.keySet()));
  const { log } = captureLog();
  const jwt = { kind: "jwt", issuer: ISSUER, audience: "culvert" } as const;
  const settings: TokenTrust[] = [
    { ...jwt, jwks: { file }, subjects: [SUBJECT] },
    { ...jwt, jwks: { file }, subjects: [SUBJECT], algorithms: ["RS256"] },
    { ...jwt, jwks: { url: "https://localhost:1/jwks" }, subjects: [SUBJECT] },
  ];
  const said: string[] = [];
  for (const one of settings) {
    const verifier = createVerifier(one, log, () => {});
    t.after(() => verifier.close());
    const [kind] = Object.keys(await verifier.verify(await issuer.token(), { signal: never() }));
    said.push(kind ?? "");
  }
  assert.deepEqual(said, ["ok", "refused", "unavailable"]);

  const review = { kind: "tokenReview", audience: "culvert", kubeconfig: join(dir, "none") } as const;
  const names = { agentNamespace: "culvert", agentServiceAccount: "agent" };
  assert.throws(() => createVerifier({ ...review, ...names }, log, () => {}), /kubeconfig .*none: .*no such file$/);
});
