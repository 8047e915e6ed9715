import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { Authority } from "../pki/certificates.ts";
import { crlOf } from "../pki/testing.ts";
import { RevocationList } from "./revocation-list.ts";

/** The kind of public keys of elliptic curves (RFC 5480 §2.1.1). */
const EC_KEY = Buffer.from("06072a8648ce3d0201", "hex");

test("a CA whose key is of a kind that Node does not know has no CRL, and ends no process", async () => {
  const authority = await Authority.create("odd");
  const raw = Buffer.from(new X509Certificate(authority.cert).raw);
  raw[raw.indexOf(EC_KEY) + EC_KEY.length - 1] = 0x7f;
  const odd = new X509Certificate(raw);
  assert.throws(() => odd.publicKey);
  const pem = await crlOf(authority, []);
  const list = new RevocationList(Buffer.from(pem.replace(/-----[^-]+-----/g, ""), "base64"));
  assert.equal(list.isOf(new X509Certificate(authority.cert)), true);
  assert.equal(list.isOf(odd), false);
});
