import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { Authority } from "../pki/certificates.ts";
import { factsOf, type IssuerContext, identityWords, innerCaWords, unknownIssuer } from "./server-certificate.ts";

const DIRECT: IssuerContext = { ca: undefined, isMiddleboxLikely: false };

/** The facts that are found about a certificate that a CA of this name has signed. */
async function facts(issuer: string, circumstances: Partial<IssuerContext> = {}) {
  const authority = await Authority.create(issuer);
  const { cert } = await authority.issue({ cn: "server", usage: "server" });
  return factsOf([new X509Certificate(cert)], { ...DIRECT, ...circumstances });
}

test("a control plane's CA is missing in --ca-cert, whatever else is on the path", async () => {
  for (const issuer of [
    "culvert server CA",
    "konnectivity-signer",
    "kubernetes",
    "kube-ca",
    "kubelet-signer",
    "kubelet-bootstrap-kubeconfig-signer",
    "kubeadm-ca",
    "kubermatic",
    "minikubeCA",
    "k3s-server-ca@1700000000",
    "kubernetes-front-proxy-ca",
  ]) {
    for (const isMiddleboxLikely of [false, true])
      assert.equal((await facts(issuer, { isMiddleboxLikely })).kind, "unknown_ca");
  }
});

test("anybody's CA is missing in --ca-cert on a direct path, and intercepts where somebody is known to be on it", async () => {
  for (const issuer of ["ACME Platform CA", "mink3s", "Culverton", "proximity", "front-proxy-ca", "Charlestown CA"]) {
    assert.equal((await facts(issuer)).kind, "unknown_ca", issuer);
    assert.equal((await facts(issuer, { isMiddleboxLikely: true })).kind, "intercepted", issuer);
  }
});

test("a CA that has the name of an inspection intercepts on a direct path, too", async () => {
  for (const issuer of [
    "Corp Inspection CA",
    "mitmproxy",
    "Zscaler Intermediate Root CA (zscalertwo.net)",
    "FortiGate CA",
    "Kubelka Proxy CA",
    "PortSwigger CA",
    "Gateway CA - Cloudflare Managed G1",
  ]) {
    assert.equal((await facts(issuer)).kind, "intercepted", issuer);
  }
});

test("how a certificate stands to --ca-cert: none is given, another CA, the same name with another key, signed by itself", async () => {
  const [one, namesake, other] = await Promise.all(
    ["our CA", "our CA", "another CA"].map((cn) => Authority.create(cn)),
  );
  assert.ok(one && namesake && other);
  const { cert } = await one.issue({ cn: "server", usage: "server" });
  const [leaf, root] = [new X509Certificate(cert), new X509Certificate(one.cert)];
  const relation = (ca: string | undefined, shown = [leaf]) => factsOf(shown, { ...DIRECT, ca }).relation;
  assert.equal(relation(undefined), "none_given");
  assert.equal(relation(other.cert), "another");
  for (const shown of [[leaf], [leaf, root], [root]]) {
    assert.equal(relation(`${other.cert}${namesake.cert}`, shown), "same_name");
  }
  // OpenSSL has found our CA by its name, and not yet looked at the signature.
  assert.equal(relation(namesake.cert, [leaf, new X509Certificate(namesake.cert)]), "same_name");
  for (const ca of [undefined, other.cert]) assert.equal(relation(ca, [root]), "self_signed");
  // The old key stays beside the new one while a CA is renewed.
  assert.equal(relation(`${namesake.cert}${one.cert}`), "another");
  assert.equal(factsOf([], DIRECT).issuer, "unknown");
});

test("of a chain the CA at its top is named: that is the one which --ca-cert or --outer-ca lacks", async () => {
  const root = await Authority.create("Root");
  const { cert } = await root.issue({ cn: "Intermediate", usage: "server" });
  const below = await Authority.create("Intermediate");
  const leaf = await below.issue({ cn: "server", usage: "server" });
  assert.equal(
    factsOf(
      [leaf.cert, cert].map((pem) => new X509Certificate(pem)),
      DIRECT,
    ).issuer,
    "Root",
  );
});

test("each sentence has at most 30 words, and names the option", () => {
  const cause = Object.assign(new Error("self-signed certificate in certificate chain"), {
    code: "SELF_SIGNED_CERT_IN_CHAIN",
  });
  for (const relation of ["none_given", "another", "same_name", "self_signed"] as const) {
    const outside = unknownIssuer({ issuer: "X", relation, kind: "unknown_ca" }, cause);
    assert.equal(outside.code, "SELF_SIGNED_CERT_IN_CHAIN");
    for (const sentence of [outside.message, innerCaWords(outside.facts)]) {
      assert.ok(sentence.split(" ").length <= 30, sentence);
      assert.match(sentence, /^the server's certificate .*--ca-cert/);
      if (relation !== "same_name") assert.match(sentence, /; or something on the path (opens TLS|plays the server)$/);
    }
  }
  const { message } = unknownIssuer({ issuer: "X", relation: "another", kind: "intercepted" }, cause);
  assert.ok(message.split(" ").length <= 30, message);
  assert.match(message, /^TLS is intercepted by "X", .*--outer-ca .*--ca-cert$/);
});

function wordsFor(host: string, certificate: { subjectaltname?: string; subject?: object }): string {
  const error = checkServerIdentity(host, { subject: {}, ...certificate } as PeerCertificate);
  return identityWords(error ?? assert.fail("it has this name"));
}

for (const [names, certificate, whom] of [
  ["a host name and something else", { subjectaltname: "DNS:a.example, URI:urn:b" }, "a.example"],
  ["several", { subjectaltname: "DNS:a.example, IP Address:10.0.0.2" }, "a.example, 10.0.0.2"],
  ["more than anybody reads", { subjectaltname: "DNS:a, DNS:c, DNS:d, DNS:e, DNS:f" }, "a, c, d and 2 more"],
  ["a common name", { subject: { CN: "a.example" } }, "a.example"],
  ["several common names", { subject: { CN: ["a", "c"] } }, "a, c"],
] as const) {
  test(`a certificate with other names (${names}) is reported with the names that it has`, () => {
    for (const host of ["10.0.0.1", "b.example"]) {
      assert.equal(wordsFor(host, certificate), `the certificate is for ${whom}, not for ${host}`);
    }
  });
}

test("a certificate without any name is reported as that", () => {
  for (const host of ["10.0.0.1", "b.example"]) {
    assert.equal(wordsFor(host, {}), `the certificate has no name in it, and so not ${host}`);
  }
});

test("what is no fault of a name stays in Node's words, but for a reset", () => {
  assert.equal(identityWords(new Error("socket hang up")), "socket hang up");
  const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET", syscall: "read" });
  assert.equal(identityWords(reset), "the connection was reset");
});

test("what an unauthenticated peer's certificate says is one line, and bounded", () => {
  const long = `x\r\n\u001b[2J${"y".repeat(500)}`;
  const certificate = { subject: { CN: Array(9).fill(long) } };
  assert.match(wordsFor("::1", certificate), /^[\x20-\x7e]{1,320}$/);
});
