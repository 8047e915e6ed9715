import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { Authority } from "../pki/certificates.ts";
import { isInstalled, signs } from "./installed-authorities.ts";

test("a CA has signed a certificate if name and key are its own, not by its name alone", async () => {
  const [one, namesake] = await Promise.all([Authority.create("Corp CA"), Authority.create("Corp CA")]);
  const leaf = new X509Certificate((await one.issue({ cn: "server", usage: "server" })).cert);
  const [ours, theirs] = [one, namesake].map(({ cert }) => new X509Certificate(cert));
  assert.ok(ours && theirs);
  assert.equal(signs([theirs, ours], leaf), true);
  assert.equal(signs([theirs], leaf), false);
  assert.equal(isInstalled(leaf), false, "nobody has installed it on this machine");
});
