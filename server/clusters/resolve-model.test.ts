import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { matchesSubject } from "../../shared/basics/text.ts";
import type { FileCandidate } from "../../shared/documents/resolve-conflicts.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import { type PeerIdentity, parsePattern, permits } from "../../shared/tls/identity.ts";
import { TargetRules } from "./access-rules.ts";
import { type Cluster, type ClusterSide, ServerNames } from "./cluster.ts";
import { Destinations } from "./destinations.ts";
import type { TokenTrust } from "./document.ts";
import { resolveClusters } from "./reservations.ts";

// Small sets of what documents can say, and all that clients could bring: whatever files come and go, nothing that one
// client
// brings may lead to two clusters.

const root = await certificateOf({ cn: "root" });
const renewed = await certificateOf({ cn: "root", keyOf: root });
const middle = await certificateOf({ cn: "middle", by: root });
const other = await certificateOf({ cn: "other" });
const BUNDLES = [root.cert, renewed.cert, other.cert, root.cert + middle.cert, other.cert + renewed.cert];
const FLAGS = { agents: renewed.cert, callers: other.cert };

const NAMES = ["a.x", "b.x", "a.a.x", "x", "y"];
const IDENTITIES = ["CN=a", "CN=b", "CN=a*", "CN=*b", "CN=ab,O=a", "CN=ab,O=b", "O=b", "CN=*"];
const SUBJECTS = ["n:a", "n:b", "n:*", "*:a", "*"];

const der = ({ cert }: { readonly cert: string }) => new X509Certificate(cert).raw;
/** Which bundle a certificate of each CA stands by, as a server verifies it. */
const STANDINGS = await Promise.all(
  [[root], [middle, root], [other]].map(async ([by, ...above]) => {
    const leaf = await certificateOf({ cn: "leaf", isCa: false, ...(by && { by }) });
    const chain = [leaf, by ?? leaf, ...above].map(der);
    return new Set(BUNDLES.filter((bundle) => new ClientTrust(bundle).status(chain) === "valid"));
  }),
);
const HOLDERS = ["a", "b", "ab", "ba"].flatMap((cn) =>
  [[], ["a"], ["b"]].map((o): PeerIdentity => {
    return { cn, o, dns: [], uri: [], serial: "01", fingerprint256: "", notAfter: new Date(0), chain: [] };
  }),
);
const TOKENS = ["i", "j"].flatMap((issuer) =>
  ["m", "n"].flatMap((kind) => ["a", "b"].map((name) => ({ issuer, sub: `${kind}:${name}` }))),
);

const sni = fc.subarray([...NAMES, "*.x", "*.a.x"], { minLength: 1, maxLength: 2 });
const identities = fc
  .subarray(IDENTITIES, { maxLength: 2 })
  .map((texts): Partial<ClusterSide> => ({ identities: texts.map(parsePattern) }));
const ca = fc.constantFrom(...BUNDLES);
const certificates = fc
  .tuple(identities, fc.option(ca, { nil: undefined }))
  .map(([own, ca]) => (ca === undefined ? { ...own, token: undefined } : { ...own, ca }));
const token = fc
  .record({
    kind: fc.constant("jwt" as const),
    issuer: fc.constantFrom("i", "j"),
    audience: fc.constant("culvert"),
    jwks: fc.constantFrom({ file: "/a" }, { file: "/b" }),
    subjects: fc.subarray(SUBJECTS, { minLength: 1, maxLength: 2 }),
  })
  .map((rule): Partial<ClusterSide> => ({ token: rule }));
/** One thing at a time in which a cluster may conflict with others. */
const document = fc.record({
  name: fc.constantFrom("blue", "red", "gold", "lime", "grey", "pink"),
  side: fc.constantFrom("agents", "callers"),
  wish: fc.oneof(
    sni.map((names): Partial<ClusterSide> => ({ sni: names })),
    certificates,
    token,
  ),
});
/** `null`: it cannot be read; `touched`: it was written again as it is. */
const file = fc.oneof(
  { weight: 1, arbitrary: fc.constantFrom(null, "touched" as const) },
  { weight: 3, arbitrary: fc.array(document, { maxLength: 2 }) },
);
const versions = fc.array(fc.array(file, { minLength: 4, maxLength: 4 }), { minLength: 1, maxLength: 4 });

type Document = typeof document extends fc.Arbitrary<infer T> ? T : never;

function cluster(path: string, { name, side, wish }: Document): Cluster {
  const own = (port: string): ClusterSide => ({
    sni: [`${name}.${port}`],
    identities: [],
    token: { kind: "jwt", issuer: "i", audience: name + port, jwks: { file: "/k" }, subjects: ["*"] },
  });
  const sides = { agents: own("agents"), callers: own("callers") };
  const { token = undefined, ...asked } = { ...sides[side], ...wish };
  const rest = { targets: new TargetRules([], []), destinations: new Destinations([]), limits: {}, suspended: false };
  return { name, file: path, ...sides, [side]: token === undefined ? asked : { ...asked, token }, ...rest };
}

function takes(rule: TokenTrust | undefined, { issuer, sub }: (typeof TOKENS)[number]): boolean {
  if (rule?.kind !== "jwt" || rule.audience !== "culvert" || rule.issuer !== issuer) return false;
  return rule.subjects.some((pattern) => matchesSubject(pattern, sub));
}

/** Throws what leads to two of these clusters. */
function mustBeApart(clusters: readonly Cluster[]): void {
  const apart = (what: string, leadsTo: (cluster: Cluster, side: "agents" | "callers") => boolean) => {
    const reached = clusters.filter((one) => leadsTo(one, "agents") || leadsTo(one, "callers"));
    assert.ok(reached.length <= 1, `${what} leads to ${reached.map(({ name, file }) => `${name} in ${file}`)}`);
  };
  for (const own of new Set(clusters.map(({ name }) => name))) apart(`the name ${own}`, ({ name }) => name === own);
  for (const asked of NAMES) {
    for (const port of ["agents", "callers"] as const) {
      apart(`${asked} on the port of ${port}`, (one, side) => {
        return side === port && new ServerNames([{ value: one, names: one[side].sni }]).find(asked) === one;
      });
    }
  }
  for (const held of TOKENS) apart(`a token ${JSON.stringify(held)}`, (one, side) => takes(one[side].token, held));
  for (const bundles of STANDINGS) {
    for (const holder of HOLDERS) {
      apart(`a certificate of ${holder.cn}, ${holder.o}`, (one, side) => {
        const { ca, identities, token } = one[side];
        const tokenOnly = ca === undefined && token !== undefined && identities.length === 0;
        const role = side === "agents" ? "agent" : "caller";
        return !tokenOnly && bundles.has(ca ?? FLAGS[side]) && permits(identities, role, holder);
      });
    }
  }
}

test("whatever documents say, no credential and no name leads to two clusters, and no cluster loses what it had", () => {
  fc.assert(
    fc.property(versions, (history) => {
      let inUse: ReadonlyMap<string, readonly Cluster[]> = new Map();
      for (const files of history) {
        const candidates = files.map((documents, index): FileCandidate<Cluster> => {
          const path = String(index);
          const before = inUse.get(path) ?? [];
          if (documents === "touched") return { file: path, before, next: before.map((one) => ({ ...one })) };
          return { file: path, before, next: documents?.map((one) => cluster(path, one)) };
        });
        const resolved = resolveClusters(candidates, FLAGS);
        inUse = resolved.inUse;
        mustBeApart([...inUse.values()].flat());
        const refused = new Set(resolved.problems.map((problem) => problem.file));
        for (const [index, { file: path, before, next }] of candidates.entries()) {
          assert.ok(files[index] !== "touched" || !refused.has(path), "who asks for nothing new is not refused");
          assert.equal(inUse.get(path), refused.has(path) ? before : (next ?? before));
        }
        // A second look at the same files changes nothing that is in use.
        const again = resolveClusters(
          [...inUse].map(([path, before]) => ({ file: path, before, next: before })),
          FLAGS,
        );
        assert.deepEqual(again.problems, []);
      }
    }),
    { includeErrorInReport: true, numRuns: process.env["CI"] === "true" ? 10_000 : 1_000 },
  );
});
