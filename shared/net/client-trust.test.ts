import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { certificateOf } from "../pki/testing.ts";
import { ClientTrust } from "./client-trust.ts";

const chainOf = (...all: readonly Pick<CertificateAndKey, "cert">[]) =>
  all.map(({ cert }) => new X509Certificate(cert).raw);

test("a certificate stands by the CA that has signed it, alone or among others, and by no other of the same name", async () => {
  const ours = await Authority.create("ca");
  const namesake = await Authority.create("ca");
  const other = await Authority.create("other");
  const chain = chainOf(await ours.issue({ cn: "client", usage: "client" }));
  for (const [ca, standing] of [
    [ours.cert, "stands"],
    [other.cert + ours.cert, "stands"],
    [other.cert, "untrusted"],
    [namesake.cert, "untrusted"],
    ["", "untrusted"],
  ] as const) {
    assert.equal(new ClientTrust(ca).standing(chain), standing);
  }
});

test("a CA that was renewed with the same key, and between which others stand, still counts", async () => {
  const root = await certificateOf({ cn: "root" });
  const renewed = await certificateOf({ cn: "root", keyOf: root });
  const middle = await certificateOf({ cn: "middle", by: root });
  const chain = chainOf(await certificateOf({ cn: "client", isCa: false, by: middle }), middle);
  assert.equal(new ClientTrust(renewed.cert).standing(chain), "stands");
  assert.equal(new ClientTrust(root.cert + middle.cert).standing(chain.slice(0, 1)), "stands");
  assert.equal(new ClientTrust(root.cert).standing(chain.slice(0, 1)), "untrusted");
  assert.equal(
    new ClientTrust(middle.cert).standing(chain),
    "untrusted",
    "a CA in the middle is no end, as for OpenSSL",
  );
  const stranger = await Authority.create("root");
  assert.equal(new ClientTrust(stranger.cert).standing(chain), "untrusted");
});

test("what is no CA has signed nothing, and time takes nothing away", async () => {
  const ca = await Authority.create("ca");
  const past = new Date(Date.now() - 60_000);
  const notBefore = new Date(Date.now() - 120_000);
  const ended = await ca.issue({ cn: "client", usage: "client", notBefore, notAfter: past });
  assert.equal(new ClientTrust(ca.cert).standing(chainOf(ended)), "stands");
  const self = await ca.issue({ cn: "client", usage: "client" });
  assert.equal(new ClientTrust(self.cert).standing(chainOf(self)), "untrusted");
});
