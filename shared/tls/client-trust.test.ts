import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import tls from "node:tls";
import { tlsServerOn } from "../node/sockets.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { asVersion1, certificateOf, crlOf, derOf } from "../pki/testing/certificates.ts";
import { trustIn } from "./authorities.ts";
import { ClientTrust } from "./client-trust.ts";
import { RevocationList } from "./revocation-list.ts";

const chainOf = (...all: readonly Pick<CertificateAndKey, "cert">[]) =>
  all.map(({ cert }) => new X509Certificate(cert).raw);

test("a certificate stands by the CA that has signed it, alone or among others, and by no other of the same name", async () => {
  const ours = await Authority.create("ca");
  const namesake = await Authority.create("ca");
  const other = await Authority.create("other");
  const chain = chainOf(await ours.issue({ cn: "client", usage: "client" }));
  for (const [ca, expected] of [
    [ours.cert, "valid"],
    [other.cert + ours.cert, "valid"],
    [other.cert, "untrusted"],
    [namesake.cert, "untrusted"],
    ["", "untrusted"],
  ] as const) {
    assert.equal(new ClientTrust(ca).status(chain), expected);
  }
});

test("a CA that was renewed with the same key, and between which others stand, still counts", async () => {
  const root = await certificateOf({ cn: "root" });
  const renewed = await certificateOf({ cn: "root", keyOf: root });
  const middle = await certificateOf({ cn: "middle", by: root });
  const chain = chainOf(await certificateOf({ cn: "client", isCa: false, by: middle }), middle);
  assert.equal(new ClientTrust(renewed.cert).status(chain), "valid");
  assert.equal(new ClientTrust(root.cert + middle.cert).status(chain.slice(0, 1)), "valid");
  assert.equal(new ClientTrust(root.cert).status(chain.slice(0, 1)), "untrusted");
  assert.equal(new ClientTrust(middle.cert).status(chain), "valid", "an issuing CA without its root");
  assert.equal(new ClientTrust(middle.cert).status(chain.slice(0, 1)), "valid");
  const stranger = await Authority.create("root");
  assert.equal(new ClientTrust(stranger.cert).status(chain), "untrusted");
});

test("what is no CA has signed nothing, and time takes nothing away", async () => {
  const ca = await Authority.create("ca");
  const past = new Date(Date.now() - 60_000);
  const notBefore = new Date(Date.now() - 120_000);
  const ended = await ca.issue({ cn: "client", usage: "client", notBefore, notAfter: past });
  assert.equal(new ClientTrust(ca.cert).status(chainOf(ended)), "valid");
  const leaf = await ca.issue({ cn: "client", usage: "client" });
  assert.equal(new ClientTrust(leaf.cert).status(chainOf(leaf)), "untrusted");
  const by = { cert: leaf.cert, key: leaf.key };
  assert.equal(new ClientTrust(ca.cert).status(chainOf(await certificateOf({ cn: "fake", by }), leaf)), "untrusted");
});

/** Does a Node server with this CA accept a client with this certificate and the others in its chain? */
async function isAuthorized(ca: string, { cert, key }: CertificateAndKey, between = ""): Promise<boolean> {
  const context = tls.createSecureContext({ ...served, ...trustIn(ca) });
  const server = tlsServerOn(context, { requestCert: true, rejectUnauthorized: false }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, cert: cert + between, key });
  const [socket] = (await once(server, "secureConnection")) as [tls.TLSSocket];
  server.close();
  client.destroy();
  socket.destroy();
  return socket.authorized;
}

const served = await (await Authority.create("server")).issue({ cn: "server", names: ["localhost"], usage: "server" });

const oldRoot = (netscapeType: number) => certificateOf({ cn: "old", isCa: "unsaid", anyUsage: true, netscapeType });

test("a CA that does not say that it is one counts where Node's TLS accepts it, with and without a CRL", async () => {
  const root = await certificateOf({ cn: "root" });
  for (const [what, anchor, middle, expected] of [
    ["a root", root, undefined, "valid"],
    ["a root of version 1", asVersion1(await certificateOf({ cn: "v1" })), undefined, "valid"],
    ["a root with the usage of a CA", await certificateOf({ cn: "used", isCa: "unsaid" }), undefined, "valid"],
    ["a root that Netscape's type calls a CA", await oldRoot(0x07), undefined, "valid"],
    ["a root that Netscape's type calls a CA of mail", await oldRoot(0x02), undefined, "untrusted"],
    ["a root that Netscape's type calls a client", await oldRoot(0x80), undefined, "untrusted"],
    [
      "a root that says nothing",
      await certificateOf({ cn: "x", isCa: "unsaid", anyUsage: true }),
      undefined,
      "untrusted",
    ],
    [
      "a root that says it is none",
      await certificateOf({ cn: "no", isCa: false, anyUsage: true }),
      undefined,
      "untrusted",
    ],
    ["under the usage of a CA", root, await certificateOf({ cn: "used", isCa: "unsaid", by: root }), "untrusted"],
    [
      "under one that says nothing",
      root,
      await certificateOf({ cn: "x", isCa: "unsaid", anyUsage: true, by: root }),
      "untrusted",
    ],
    [
      "under one that says it is none",
      root,
      await certificateOf({ cn: "no", isCa: false, anyUsage: true, by: root }),
      "untrusted",
    ],
  ] as const) {
    const leaf = await certificateOf({ cn: "client", isCa: false, by: middle ?? anchor });
    assert.equal(await isAuthorized(anchor.cert, leaf, middle?.cert), expected === "valid", `TLS: ${what}`);
    const chain = chainOf(...(middle === undefined ? [leaf] : [leaf, middle]));
    assert.equal(new ClientTrust(anchor.cert).status(chain), expected, what);
    const revoking = new ClientTrust(
      anchor.cert,
      listsOf(await crlOf(middle ?? anchor, [leaf], { nextUpdate: LATER })),
    );
    assert.equal(revoking.status(chain, AT), expected === "valid" ? "revoked" : "untrusted", what);
  }
});

test("a certificate that has signed itself stands where it is trusted as it is", async () => {
  const self = await certificateOf({ cn: "client", isCa: false });
  assert.equal(new ClientTrust(self.cert).status(chainOf(self)), "valid");
  assert.equal(new ClientTrust((await certificateOf({ cn: "client" })).cert).status(chainOf(self)), "untrusted");
});

test("CAs that have signed each other again and again cost a bounded number of signatures, and lead nowhere", async (t) => {
  const [n, m] = [await certificateOf({ cn: "N" }), await certificateOf({ cn: "M" })];
  const crossed = await Promise.all(
    Array.from({ length: 8 }, (_, index) =>
      index % 2 === 0 ? certificateOf({ cn: "N", keyOf: n, by: m }) : certificateOf({ cn: "M", keyOf: m, by: n }),
    ),
  );
  const chain = chainOf(await certificateOf({ cn: "client", isCa: false, by: n }), ...crossed);
  const verify = t.mock.method(X509Certificate.prototype, "verify");
  assert.equal(new ClientTrust((await Authority.create("other")).cert).status(chain), "untrusted");
  assert.ok(verify.mock.callCount() < 1_000, `${verify.mock.callCount()} signatures`);
});

/** CRLs as `ClientTrust` takes them. */
const listsOf = (...pems: readonly string[]) => pems.map((pem) => new RevocationList(derOf(pem)));

const AT = new Date();
const LATER = new Date(AT.getTime() + 3_600_000);
const BEFORE = new Date(AT.getTime() - 3_600_000);

test("a CRL revokes what it lists of its own CA, and nothing of another one of the same name and serial numbers", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const namesake = await certificateOf({ cn: "ca" });
  const bad = await certificateOf({ cn: "bad", isCa: false, by: ca, serial: "0a" });
  const good = await certificateOf({ cn: "good", isCa: false, by: ca, serial: "0b" });
  const others = await certificateOf({ cn: "others", isCa: false, by: namesake, serial: "0a" });
  const trust = new ClientTrust(ca.cert + namesake.cert, listsOf(await crlOf(ca, [bad], { nextUpdate: LATER })));
  assert.equal(trust.status(chainOf(bad), AT), "revoked");
  assert.equal(trust.status(chainOf(bad)), "revoked");
  assert.equal(trust.status(chainOf(good), AT), "valid");
  assert.equal(trust.status(chainOf(others), AT), "valid");
});

test("a CA in the middle can be revoked and can revoke, whether it is among the CAs or comes with the client", async () => {
  const root = await certificateOf({ cn: "root" });
  const middle = await certificateOf({ cn: "middle", by: root });
  const crossed = await certificateOf({ cn: "middle", by: root, keyOf: middle });
  const leaf = await certificateOf({ cn: "leaf", isCa: false, by: middle });
  const ofRoot = await crlOf(root, [middle], { nextUpdate: LATER });
  const ofMiddle = await crlOf(middle, [leaf], { nextUpdate: LATER });
  for (const [ca, crl, chain, expected] of [
    [root.cert, ofRoot, [leaf, middle], "revoked"],
    [root.cert + middle.cert, ofRoot, [leaf], "revoked"],
    [root.cert, ofRoot, [leaf, crossed], "valid"],
    [root.cert, ofMiddle, [leaf, middle], "revoked"],
    [root.cert + middle.cert, ofMiddle, [leaf], "revoked"],
    [root.cert + middle.cert, ofMiddle, [leaf, crossed], "revoked"],
  ] as const) {
    assert.equal(new ClientTrust(ca, listsOf(crl)).status(chainOf(...chain), AT), expected);
  }
});

test("a CRL that is too old says nothing good of anybody, unless nobody asks for the time; what it lists stays revoked", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const free = await certificateOf({ cn: "free" });
  const bad = await certificateOf({ cn: "bad", isCa: false, by: ca });
  const good = await certificateOf({ cn: "good", isCa: false, by: ca });
  const unlisted = await certificateOf({ cn: "unlisted", isCa: false, by: free });
  const old = await crlOf(ca, [bad], { nextUpdate: BEFORE });
  const trust = new ClientTrust(ca.cert + free.cert, listsOf(old));
  assert.equal(trust.status(chainOf(good), AT), "crl_expired");
  assert.equal(trust.status(chainOf(good)), "valid");
  assert.equal(trust.status(chainOf(bad), AT), "revoked");
  assert.equal(trust.status(chainOf(unlisted), AT), "valid", "a CA of which there is no CRL revokes nothing");
  const young = await crlOf(ca, [], { nextUpdate: LATER });
  assert.equal(new ClientTrust(ca.cert, listsOf(old, young)).status(chainOf(good), AT), "valid");
  const undated = await crlOf(ca, []);
  assert.equal(new ClientTrust(ca.cert, listsOf(undated)).status(chainOf(good), AT), "valid", "it names no next one");
});

test("a CRL that another key has signed is nobody's", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const namesake = await certificateOf({ cn: "ca" });
  const bad = await certificateOf({ cn: "bad", isCa: false, by: ca });
  const trust = new ClientTrust(ca.cert, listsOf(await crlOf(namesake, [bad])));
  assert.equal(trust.status(chainOf(bad), AT), "valid");
  assert.deepEqual(
    trust.lists.map((list) => trust.knows(list)),
    [false],
  );
});

test("a CRL of an issuing CA without its root revokes, and with the root the root's CRL revokes the issuing CA", async () => {
  const root = await certificateOf({ cn: "root" });
  const issuing = await certificateOf({ cn: "issuing", by: root });
  const leaf = await certificateOf({ cn: "client", isCa: false, by: issuing });
  const chain = chainOf(leaf, issuing);
  const ofIssuing = listsOf(await crlOf(issuing, [leaf], { nextUpdate: LATER }));
  const ofRoot = listsOf(await crlOf(root, [issuing], { nextUpdate: LATER }));
  for (const [what, ca, lists, expected] of [
    ["the CRL of the issuing CA", issuing.cert, ofIssuing, "revoked"],
    ["the CRL of the issuing CA, beside its root", root.cert + issuing.cert, ofIssuing, "revoked"],
    ["the CRL of a root that is trusted", root.cert + issuing.cert, ofRoot, "revoked"],
    ["the CRL of a root that is trusted alone", root.cert, ofRoot, "revoked"],
    ["the CRL of a root that is not trusted", issuing.cert, ofRoot, "valid"],
    ["the CRL of another leaf", issuing.cert, listsOf(await crlOf(issuing, [], { nextUpdate: LATER })), "valid"],
  ] as const) {
    assert.equal(new ClientTrust(ca, lists).status(chain, AT), expected, what);
  }
  const overdue = listsOf(await crlOf(issuing, [], { nextUpdate: new Date(Date.now() - 60_000) }));
  assert.equal(new ClientTrust(issuing.cert, overdue).status(chain, new Date()), "crl_expired");
  const fresh = await certificateOf({ cn: "other", by: root });
  assert.equal(new ClientTrust(fresh.cert).status(chain), "untrusted", "after the CA was replaced");
});
