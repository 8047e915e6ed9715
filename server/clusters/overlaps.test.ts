import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { matchesWildcard } from "../../shared/basics/text.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { matches, parsePattern } from "../../shared/tls/identity.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";
import { resolveClusters } from "./reservations.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-overlaps-"));
after(() => rmSync(folder, { recursive: true }));

const root = await certificateOf({ cn: "root" });
const renewed = await certificateOf({ cn: "root", keyOf: root });
const renamed = await certificateOf({ cn: "Root of 2027", keyOf: root });
const namesake = await certificateOf({ cn: "root" });
const middle = await certificateOf({ cn: "middle", by: root });
const sibling = await certificateOf({ cn: "sibling", by: root });
const unsaid = await certificateOf({ cn: "unsaid", isCa: "unsaid" });
const underUnsaid = await certificateOf({ cn: "under", by: unsaid });
const other = await certificateOf({ cn: "other" });
/** The key of `other`, signed by `root`, too. */
const crossSigned = await certificateOf({ cn: "other", by: root, keyOf: other });
const base64 = root.cert.replace(/-----.*-----|\s/g, "");
for (const [name, pem] of Object.entries({
  root: root.cert,
  renewed: renewed.cert,
  renamed: renamed.cert,
  namesake: namesake.cert,
  middle: middle.cert,
  sibling: sibling.cert,
  unsaid: unsaid.cert,
  underUnsaid: underUnsaid.cert,
  other: other.cert,
  crossSigned: other.cert + crossSigned.cert,
  amongOthers: namesake.cert + root.cert,
  rewrapped: `subject=CN = root\r\n-----BEGIN CERTIFICATE-----\r\n${base64.replace(/.{76}/g, "$&\r\n")}\r\n-----END CERTIFICATE-----\r\n# the end`,
  relabelled: other.cert + root.cert.replaceAll("CERTIFICATE", "X509 CERTIFICATE"),
})) {
  writeFileSync(join(folder, `${name}.ca`), pem);
}

/** Two clusters that are apart but for these parts of their documents; how the second is refused, if it is. */
function refusal(blue: object, red: object): string | undefined {
  const load = (name: string, parts: object) => {
    const document = {
      name,
      ...{ agents: {}, callers: {}, ...parts },
    } as { name: string; agents: object; callers: object };
    const sides = {
      agents: { sni: [`${name}.agents.example`], token: token({ audience: name }), ...document.agents },
      callers: { uds: `/run/${name}.sock`, ...document.callers },
    };
    const file = join(folder, `${name}.yaml`);
    const loaded = parseClusterFile(file, JSON.stringify({ ...document, ...sides }), new MaterialFiles()).load();
    assert.deepEqual(loaded.faults, []);
    return { file, clusters: loaded.documents };
  };
  const [first, second] = [load("blue", blue), load("red", red)];
  const resolved = resolveClusters([
    // It is read first, and comes second all the same.
    { file: second.file, before: [], next: second.clusters },
    { file: first.file, before: first.clusters, next: first.clusters },
  ]);
  assert.equal(resolved.inUse.get(first.file), first.clusters);
  assert.equal(resolved.inUse.get(second.file)?.length, resolved.problems.length === 0 ? 1 : 0);
  for (const { file, sentence } of resolved.problems) {
    assert.equal(file, second.file);
    assert.match(sentence, /^cluster "red": .*cluster "blue" \(.*blue\.yaml\)/, "both documents are named");
  }
  return resolved.problems.map(({ sentence }) => sentence).join("\n") || undefined;
}

interface Table {
  readonly [what: string]: readonly [blue: object, red: object, refused: RegExp | undefined];
}

function check(kind: string, table: Table): void {
  for (const [what, [blue, red, refused]] of Object.entries(table)) {
    test(`${kind}: ${what} ${refused === undefined ? "are apart" : "overlap, and the second is refused"}`, () => {
      const sentence = refusal(blue, red);
      if (refused === undefined) assert.equal(sentence, undefined);
      else assert.match(sentence ?? "in use", refused);
    });
  }
}

// ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const under = /agents\.sni "a\.blue\.example" overlaps agents\.sni "\*\.blue\.example" of cluster "blue"/;
const named = (...sni: string[]) => ({ agents: { sni } });
check("names", {
  "a name and a wildcard over it": [named("*.blue.example"), named("a.blue.example"), under],
  "a wildcard and a name under it": [
    named("A.blue.example."),
    named("*.blue.example"),
    /"\*\.blue\.example" overlaps agents\.sni "a\./,
  ],
  "a wildcard and a name of two labels more": [named("*.blue.example"), named("a.b.blue.example"), undefined],
  "a wildcard and the name behind its star": [named("*.blue.example"), named("blue.example"), undefined],
  "two wildcards of which one is longer": [named("*.example"), named("*.blue.example"), undefined],
  "two names under a wildcard that nobody has": [named("a.x.example"), named("b.x.example"), undefined],
  "names on different ports": [named("*.x.example"), { callers: { sni: ["a.x.example"], ca: "other.ca" } }, undefined],
});

test("one cluster may have a wildcard and names under it", () => {
  assert.equal(refusal(named("*.blue.example", "a.blue.example"), {}), undefined);
});

// ── certificates ────────────────────────────────────────────────────────────────────────────────────────────────────

const agents = (ca: string, ...identities: string[]) => ({ agents: { ca: `${ca}.ca`, identities } });
const callers = (ca: string, ...identities: string[]) => ({
  callers: { uds: "/run/red.sock", sni: ["red.callers.example"], ca: `${ca}.ca`, identities },
});
const CURE = "clusters that share a CA, or have one that signed the other's, name the same fields in identities";
const every = new RegExp(`without (agents|callers)\\.identities (is taken by|overlaps) .*: ${CURE}`);
/** The identities of the second document and those of the first that are in their way. */
const pair = (own: string, other: string) => {
  const [mine, theirs] = [own, other].map((text) => text.replace(/[*\\]/g, "\\$&"));
  const way = `(is taken by|overlaps agents\\.ca with (the wildcard )?"${theirs}" of)`;
  return new RegExp(`\\.ca with (the wildcard )?"${mine}" ${way} cluster "blue" .*: ${CURE}, without wildcards, `);
};
check("certificates", {
  "a CA and its text wrapped otherwise": [agents("root"), agents("rewrapped"), every],
  "a CA and one renewed with the same key": [agents("root"), agents("renewed"), every],
  "a CA and the same key under another name": [agents("root"), agents("renamed"), every],
  "a CA and a bundle with it": [agents("root"), agents("amongOthers"), every],
  "a CA and a bundle with it under another label": [agents("root"), agents("relabelled"), every],
  "a CA for agents and the same for callers": [agents("root"), callers("renewed"), every],
  "two CAs of one name": [agents("root"), agents("namesake"), undefined],
  "a CA and one that it has signed": [agents("root"), agents("middle"), every],
  "a CA and the one that has signed it": [agents("middle"), agents("root"), every],
  "a CA that does not say that it is one, and one that it has signed": [agents("unsaid"), agents("underUnsaid"), every],
  "a CA and one that it has signed across": [agents("root"), agents("crossSigned"), every],
  "a CA in the middle and a namesake of its root": [agents("middle"), agents("namesake"), undefined],
  "two CAs of which neither has signed the other": [agents("other"), agents("middle"), undefined],
  "identities that differ in a field": [agents("root", "CN=blue-agent"), agents("renewed", "CN=red-agent"), undefined],
  "identities that differ in one field of two": [
    agents("root", "CN=agent,O=blue"),
    agents("root", "O=red,CN=agent"),
    undefined,
  ],
  "the same identities": [agents("root", "CN=agent"), agents("root", "CN=agent"), pair("CN=agent", "CN=agent")],
  "the same identities in another order": [
    agents("root", "CN=agent,O=all"),
    agents("root", "O=all,CN=agent"),
    pair("O=all,CN=agent", "CN=agent,O=all"),
  ],
  "a wildcard and a name that it matches": [
    agents("root", "CN=agent-*"),
    agents("renewed", "CN=agent-red"),
    pair("CN=agent-red", "CN=agent-*"),
  ],
  "a wildcard and a name that it does not match": [
    agents("root", "CN=blue"),
    agents("root", "CN=red-*"),
    pair("CN=red-*", "CN=blue"),
  ],
  "two wildcards": [agents("root", "CN=blue-*"), agents("root", "CN=red-*"), pair("CN=red-*", "CN=blue-*")],
  "names with a star that is meant": [agents("root", "CN=blue\\*"), agents("root", "CN=red\\*"), undefined],
  "a wildcard and no identities": [
    agents("root"),
    agents("root", "CN=red-*"),
    /with the wildcard "CN=red-\*" overlaps/,
  ],
  "a wildcard under another CA and a name": [agents("other", "CN=*"), agents("root", "CN=red"), undefined],
  "identities in different fields": [agents("root", "CN=blue"), agents("root", "O=red"), pair("O=red", "CN=blue")],
  "identities of which one names more fields": [
    agents("root", "CN=blue"),
    agents("root", "CN=red,O=red"),
    pair("CN=red,O=red", "CN=blue"),
  ],
  "identities of which one has more values of a field": [
    agents("root", "O=agents"),
    agents("root", "O=agents,O=red"),
    pair("O=agents,O=red", "O=agents"),
  ],
  "identities of which one has a value twice": [
    agents("root", "O=agents,O=agents"),
    agents("root", "O=agents,O=red"),
    pair("O=agents,O=red", "O=agents,O=agents"),
  ],
  "identities with two values of a field, one of which differs": [
    agents("root", "O=agents,O=blue"),
    agents("root", "O=red,O=agents"),
    undefined,
  ],
  "DNS names that differ in case": [
    agents("root", "DNS=A.example"),
    agents("root", "DNS=a.example"),
    pair("DNS=a.example", "DNS=A.example"),
  ],
  "agents and callers with one identity": [
    agents("root", "CN=kube-apiserver"),
    callers("root", "CN=kube-apiserver"),
    pair("CN=kube-apiserver", "CN=kube-apiserver"),
  ],
  "the same identities under a CA and one that it has signed": [
    agents("root", "CN=agent"),
    agents("middle", "CN=agent"),
    pair("CN=agent", "CN=agent"),
  ],
  "identities that differ under a CA and one that it has signed": [
    agents("root", "CN=blue"),
    agents("middle", "CN=red"),
    undefined,
  ],
  "two CAs that a third one has signed": [agents("middle"), agents("sibling"), undefined],
});

test("no certificate that was issued for one cluster's identity is let in by another cluster under the same CA", () => {
  const value = fc.constantFrom("a", "b", "*", "a*");
  const part = fc.tuple(fc.constantFrom("CN", "O", "DNS"), value).map((both) => both.join("="));
  const pattern = fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => parsePattern(parts.join(",")));
  const values = fc.subarray(["a", "b", "ab"]);
  const holder = fc.record({ cn: fc.constantFrom("a", "b", "ab"), o: values, dns: values });
  fc.assert(
    fc.property(pattern, pattern, holder, (issuedFor, other, { cn, o, dns }) => {
      const identity = { cn, o, dns, uri: [], serial: "01", fingerprint256: "", notAfter: new Date(0) };
      const inField = { CN: [cn], O: o, DNS: dns, URI: [] };
      const asIssued = issuedFor.parts.every(({ field }) =>
        inField[field].every((one) =>
          issuedFor.parts.some((its) => its.field === field && matchesWildcard(its.pieces, one)),
        ),
      );
      fc.pre(asIssued && matches(issuedFor, identity) && matches(other, identity));
      assert.ok(refusal(agents("root", issuedFor.text), agents("root", other.text)));
      assert.ok(refusal(agents("root", other.text), agents("root", issuedFor.text)));
    }),
    { numRuns: 300, maxSkipsPerRun: 1_000 },
  );
});

// ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const ACCOUNT = "system:serviceaccount:kube-system:agent";
function token({ audience = "culvert", issuer = "https://i", jwks = "/keys", subjects = [ACCOUNT], jwksCa = "" }) {
  return { jwt: { issuer, audience, jwks, subjects, ...(jwksCa === "" ? {} : { jwksCa }) } };
}
const jwt = (wish: Parameters<typeof token>[0] = {}) => ({ agents: { token: token(wish) } });
function review({ kubeconfig = "/k", audience = "culvert", namespace = "kube-system", account = "agent" } = {}) {
  const rule = { kubeconfig, audience, agentNamespace: namespace, agentServiceAccount: account };
  return { agents: { token: { tokenReview: rule } } };
}
const tokens =
  /agents\.token\.\w+ for the audience "culvert" .*cluster "blue" .*: give each cluster an audience of its own/;
check("tokens", {
  "the same rule": [jwt(), jwt(), tokens],
  "an account and a wildcard": [jwt(), jwt({ subjects: ["system:serviceaccount:*:agent"] }), tokens],
  "two wildcards": [
    jwt({ subjects: ["system:serviceaccount:blue:*"] }),
    jwt({ subjects: ["x", "system:serviceaccount:red:*"] }),
    tokens,
  ],
  "everybody and one account": [jwt({ subjects: ["*"] }), jwt(), tokens],
  "keys in another file": [jwt(), jwt({ jwks: "/other" }), tokens],
  "keys at another URL": [jwt(), jwt({ jwks: "https://issuer.example/keys" }), tokens],
  "keys at a URL by another CA": [
    jwt({ jwks: "https://issuer.example/keys", jwksCa: "/a" }),
    jwt({ jwks: "https://issuer.example/keys", jwksCa: "/b" }),
    tokens,
  ],
  "another kubeconfig": [review(), review({ kubeconfig: "/other" }), tokens],
  "a namespace and a wildcard": [review(), review({ namespace: "*" }), tokens],
  "an API and keys": [review(), jwt(), tokens],
  "agents and callers": [{ callers: { uds: "/b", token: token({}) } }, jwt(), tokens],
  "another audience": [jwt(), jwt({ audience: "culvert-red" }), undefined],
  "another issuer": [jwt(), jwt({ issuer: "https://other" }), undefined],
  "other accounts": [jwt(), jwt({ subjects: ["system:serviceaccount:kube-system:other"] }), undefined],
  "an API and keys for other accounts": [review(), jwt({ subjects: ["system:serviceaccount:x:y"] }), tokens],
  "wildcards of other issuers": [
    jwt({ subjects: ["*"] }),
    jwt({ subjects: ["*"], issuer: "https://other" }),
    undefined,
  ],
  "wildcards for other audiences": [jwt({ subjects: ["*"] }), jwt({ subjects: ["*"], audience: "red" }), undefined],
  "another namespace of an API": [review({ namespace: "red" }), review({ namespace: "blue" }), undefined],
});
