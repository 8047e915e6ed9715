import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import tls, { type TLSSocket } from "node:tls";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import {
  certificateVerdict,
  matches,
  type PeerIdentity,
  type PeerVerification,
  parsePattern,
  permits,
  shortSubject,
  subjectOf,
  verifyPeer,
} from "./identity.ts";

const identity = (partial: Partial<PeerIdentity>): PeerIdentity => ({
  o: [],
  dns: [],
  uri: [],
  serial: "01",
  fingerprint256: "",
  chain: [],
  notAfter: new Date(0),
  ...partial,
});

const MATCHES: [string, Partial<PeerIdentity>, boolean][] = [
  ["CN=kube-apiserver", { cn: "kube-apiserver" }, true],
  ["CN=kube-apiserver", { cn: "kube-apiserver2" }, false],
  ["CN=kube-apiserver", { o: ["kube-apiserver"] }, false],
  ["cn = kube-apiserver", { cn: "kube-apiserver" }, true],
  ["CN=Kube", { cn: "kube" }, false],
  ["CN=*", { cn: "anything" }, true],
  ["CN=*", {}, false],
  ["CN=kube-*", { cn: "kube-apiserver" }, true],
  ["CN=kube-*", { cn: "xkube-apiserver" }, false],
  ["CN=*-agent", { cn: "blue-agent" }, true],
  ["CN=*-agent", { cn: "blue-agents" }, false],
  ["CN=a*b*c", { cn: "aXbYc" }, true],
  ["CN=a*b*c", { cn: "ac" }, false],
  ["CN=ab*ba", { cn: "aba" }, false],
  ["CN=a*bc*c", { cn: "abc" }, false],
  ["CN=a.c", { cn: "abc" }, false],
  ["CN=a\\*c", { cn: "a*c" }, true],
  ["CN=a\\*c", { cn: "abc" }, false],
  ["CN=a\\,O=b", { cn: "a,O=b" }, true],
  ["CN=a\\\\b", { cn: "a\\b" }, true],
  ["O=system:masters", { o: ["x", "system:masters"] }, true],
  ["O=system:masters,CN=admin", { o: ["system:masters"], cn: "admin" }, true],
  ["O=system:masters,CN=admin", { o: ["system:masters"], cn: "bob" }, false],
  ["O=a,O=b", { o: ["b", "a"] }, true],
  ["DNS=*.Example.com", { dns: ["A.example.COM"] }, true],
  ["DNS=*.example.com", { dns: ["example.com"] }, false],
  ["URI=spiffe://blue/*", { uri: ["spiffe://blue/ns/agent"] }, true],
  ["URI=spiffe://blue/*", { uri: ["spiffe://red/ns/agent"] }, false],
];

for (const [pattern, partial, expected] of MATCHES) {
  test(`${pattern} ${expected ? "matches" : "does not match"} ${JSON.stringify(partial)}`, () => {
    assert.equal(matches(parsePattern(pattern), identity(partial)), expected);
  });
}

for (const [text, sentence] of [
  ["", /it is empty/],
  ["kube-apiserver", /"kube-apiserver" has no "="/],
  ["CN=a,b", /"b" has no "=" .*"\\,"/],
  ["CN=", /CN has no value/],
  ["CN=a,", /has no "="/],
  ["OU=x", /"OU" is none of CN, O, DNS, URI/],
  ["CN=a\\b", /backslash/],
  ["CN=a\\", /backslash/],
] as const) {
  test(`the pattern "${text}" is refused with its cure`, () => assert.throws(() => parsePattern(text), sentence));
}

test("without a list a port refuses only the other role's Konnectivity name; with one, only it counts", () => {
  const agent = identity({ cn: "konnectivity-agent" });
  const client = identity({ cn: "konnectivity-client" });
  assert.equal(permits([], "caller", client), true);
  assert.equal(permits([], "caller", agent), false);
  assert.equal(permits([], "agent", agent), true);
  assert.equal(permits([], "agent", client), false);
  assert.equal(permits([], "agent", identity({})), true);
  const patterns = [parsePattern("CN=konnectivity-agent"), parsePattern("O=x")];
  assert.equal(permits(patterns, "caller", agent), true);
  assert.equal(permits(patterns, "caller", client), false);
  assert.equal(permits(patterns, "caller", identity({ o: ["x"] })), true);
});

test("a subject is all names, the most specific first, and what stands in a name cannot pass for two", () => {
  const spiffe = identity({ o: ["SPIRE", "a,b"], uri: ["spiffe://blue/agent"] });
  assert.equal(subjectOf(spiffe), "URI=spiffe://blue/agent,O=SPIRE,O=a\\,b");
  assert.equal(shortSubject(spiffe), "URI=spiffe://blue/agent");
  assert.equal(subjectOf(identity({ cn: "a,O=b" })), "CN=a\\,O=b");
  assert.notEqual(subjectOf(identity({ cn: "a\\", o: ["b"] })), subjectOf(identity({ cn: "a\\,O=b" })));
  assert.equal(shortSubject(identity({ cn: `x\n${"y".repeat(200)}` })).length, 100);
  assert.equal(subjectOf(identity({ fingerprint256: "AB:CD" })), "AB:CD");
});

const HOUR = 3_600_000;
let accepted: Authority;
let other: Authority;
let server: tls.Server;
let seen: (socket: TLSSocket) => void = () => {};

before(async () => {
  accepted = await Authority.create("accepted");
  other = await Authority.create("other");
  const { cert, key } = await accepted.issue({ cn: "server", names: ["localhost"], usage: "server" });
  server = tls.createServer(
    { cert, key, ca: accepted.cert, requestCert: true, rejectUnauthorized: false },
    (socket) => {
      socket.on("error", () => {});
      seen(socket);
      socket.end();
    },
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});

after(() => server.close());

const verified = (socket: TLSSocket) => verifyPeer(socket, accepted.cert);

async function handshake<T>(client: CertificateAndKey | undefined, look: (socket: TLSSocket) => T): Promise<T> {
  const looked = new Promise<T>((resolve) => {
    seen = (socket) => resolve(look(socket));
  });
  const { port } = server.address() as AddressInfo;
  const socket = tls.connect({ port, servername: "localhost", ca: accepted.cert, ...client }).on("error", () => {});
  const result = await looked;
  socket.destroy();
  return result;
}

test("a certificate's names arrive as they are, however hostile", async () => {
  const leaf = await accepted.issue({
    cn: "x+y,z\nO=system:masters\0",
    o: ["a", "b, CN=admin"],
    names: ["web.example", "127.0.0.1"],
    uris: ["spiffe://a/b, DNS:evil.example", "spiffe://x/y"],
    usage: "client",
  });
  const { identity: read } = await handshake(leaf, verified);
  assert.equal(read?.cn, "x+y,z\nO=system:masters\0");
  assert.deepEqual(read.o, ["a", "b, CN=admin"]);
  assert.deepEqual(read.dns, ["web.example"]);
  assert.deepEqual(read.uri, ["spiffe://a/b, DNS:evil.example", "spiffe://x/y"]);
  assert.match(read.fingerprint256, /^([0-9A-F]{2}:){31}[0-9A-F]{2}$/);
  assert.ok(read.notAfter.getTime() > Date.now());
});

const REFUSALS: [string, () => Promise<CertificateAndKey | undefined>, RegExp][] = [
  ["none", async () => undefined, /no client certificate was sent, or none of a CA that is accepted here/],
  ["another CA's", () => other.issue({ cn: "x", usage: "client" }), /not signed by a CA that is accepted here/],
  [
    "an expired",
    () =>
      accepted.issue({
        cn: "x",
        usage: "client",
        notBefore: new Date(Date.now() - 2 * HOUR),
        notAfter: new Date(Date.now() - HOUR),
      }),
    /expired on \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/,
  ],
  [
    "a future",
    () => accepted.issue({ cn: "x", usage: "client", notBefore: new Date(Date.now() + HOUR) }),
    /not valid before .*Z: check both clocks/,
  ],
  ["a server's", () => accepted.issue({ cn: "x", usage: "server" }), /may not be used by a client .*clientAuth/],
];

for (const [name, make, sentence] of REFUSALS) {
  test(`${name} certificate is refused with a sentence`, async () => {
    const judgement: PeerVerification = await handshake(await make(), verified);
    assert.equal(judgement.identity, undefined);
    assert.match(judgement.refusal ?? "", sentence);
  });
}

test("the verdict about a certificate is one word; without a certificate there is none", async () => {
  const verdict = (client?: CertificateAndKey) => handshake(client, certificateVerdict);
  assert.equal(await verdict(), undefined);
  assert.equal(await verdict(await accepted.issue({ cn: "x", usage: "client" })), "verified");
  assert.equal(await verdict(await accepted.issue({ cn: "x", usage: "server" })), "INVALID_PURPOSE");
});

test("a certificate that came before is the same identity, and is refused all the same when TLS has not verified it", async () => {
  const leaf = await accepted.issue({ cn: "kube-apiserver", usage: "both" });
  const [first, second] = [await handshake(leaf, verified), await handshake(leaf, verified)];
  assert.equal(first.identity?.cn, "kube-apiserver");
  assert.equal(second.identity, first.identity);
  const unverified = await handshake(leaf, (socket) => {
    Object.assign(socket, { authorized: false, authorizationError: "CERT_REVOKED" });
    return verified(socket);
  });
  assert.match(unverified.refusal ?? "", /is revoked/);
  const ofOtherCa = await handshake(leaf, (socket) => verifyPeer(socket, other.cert));
  assert.notEqual(ofOtherCa.identity, first.identity, "by another CA it may have another chain");
});

test("a certificate with two common names is refused, because readers differ in which one counts", async () => {
  const leaf = await accepted.issue({ cn: ["konnectivity-agent", "kube-apiserver"], usage: "client" });
  assert.match((await handshake(leaf, verified)).refusal ?? "", /several common names/);
});

test("a certificate with many names is read each time", async () => {
  const names = Array.from({ length: 17 }, (_, index) => `n${index}.example`);
  const leaf = await accepted.issue({ cn: "kube-apiserver", usage: "client", names });
  assert.notEqual((await handshake(leaf, verified)).identity, (await handshake(leaf, verified)).identity);
});
