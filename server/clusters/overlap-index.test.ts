import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { type Outlined, OverlapIndex } from "../../shared/documents/overlap-index.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { type IdentityPattern, parsePattern, patternsMeet } from "../../shared/tls/identity.ts";
import type { Cluster } from "./cluster.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";
import { certificateReservations, outlineOf, resolveClusters, tokenReservations } from "./reservations.ts";

const FLAGS = {
  agents: (await certificateOf({ cn: "agents" })).cert,
  callers: (await certificateOf({ cn: "all" })).cert,
};

function clusterOf(name: string, agents: object): Cluster {
  const sni = (side: string) => [`${name}.${side}.example`];
  const document = {
    name,
    agents: { sni: sni("agents"), ...agents },
    callers: { sni: sni("callers"), identities: [`CN=caller-${name}`] },
  };
  const { documents, faults } = parseClusterFile(name, JSON.stringify(document), new MaterialFiles()).load();
  assert.deepEqual(faults, []);
  return documents[0] ?? assert.fail();
}

const subjects = (name: string, ...subjects: string[]) => ({
  token: { jwt: { issuer: `https://${name}`, audience: "culvert", jwks: "/keys", subjects } },
});

/** How many pairs of claims a start of this number of clusters compares. */
function comparisons(t: TestContext, count: number, agentsOf: (name: string) => object): number {
  const clusters = Array.from({ length: count }, (_, at) => {
    const name = `c${String(at).padStart(4, "0")}`;
    return clusterOf(name, agentsOf(name));
  });
  const [first = assert.fail()] = clusters;
  const claims = [...certificateReservations(first, FLAGS), ...tokenReservations(first)];
  const classes = new Set(claims.map((claim) => Object.getPrototypeOf(claim)));
  const compared = [...classes].map((prototype) => t.mock.method(prototype, "overlaps").mock);
  const settled = resolveClusters(
    clusters.map((cluster) => ({ file: cluster.name, before: [], next: [cluster] })),
    FLAGS,
  );
  assert.deepEqual(settled.problems, []);
  const calls = compared.reduce((sum, mock) => sum + mock.callCount(), 0);
  for (const mock of compared) mock.restore();
  return calls;
}

for (const [what, agentsOf] of Object.entries({
  "names without a star": (name) => ({ identities: [`CN=${name}`, `CN=other-${name}`] }),
  "names that begin differently": (name) => ({ identities: [`CN=agent-${name}-*`, `CN=${name}`] }),
  "names that end differently": (name) => ({ identities: [`DNS=*.${name}.example`] }),
  "names that differ in the second field": (name) => ({ identities: [`CN=agent-*,O=${name}`] }),
  "token subjects of other namespaces": (name) => subjects("one", `system:serviceaccount:${name}:*`),
  "token subjects of other accounts": (name) => subjects("one", `system:serviceaccount:*:${name}`),
  "tokens of other issuers": (name) => subjects(name, "system:serviceaccount:*:agent"),
} satisfies Record<string, (name: string) => object>)) {
  test(`clusters with ${what} under one CA and audience are not compared pair by pair at a start`, (t) => {
    const compared = comparisons(t, 400, agentsOf);
    assert.ok(compared <= 2 * 400, `${compared} comparisons of 400 clusters`);
  });
}

/** All claims that overlap with one are near it, in the order in which they were added. */
function findsAll(claims: readonly Outlined[], overlap: (one: number, other: number) => boolean): void {
  const index = new OverlapIndex<number>(claims, []);
  for (const [at, claim] of claims.entries()) index.add(at, claim);
  for (const [at, claim] of claims.entries()) {
    const near = index.near(claim);
    assert.deepEqual(
      near,
      [...new Set(near)].sort((one, other) => one - other),
    );
    for (const other of claims.keys()) assert.ok(near.includes(other) || !overlap(at, other), `${at} and ${other}`);
  }
}

const wordOf = (...letters: string[]) =>
  fc.array(fc.constantFrom(...letters), { minLength: 1, maxLength: 4 }).map((all) => all.join(""));
const many = { minLength: 16, maxLength: 40 };

test("an index finds all identities that overlap", () => {
  const part = fc.tuple(fc.constantFrom("CN", "O", "URI"), wordOf("a", "b", "*")).map((pair) => pair.join("="));
  const pattern = fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => parsePattern(parts.join(",")));
  const side = fc.array(pattern, { maxLength: 2 });
  const meet = (one: readonly IdentityPattern[] = [], other: readonly IdentityPattern[] = []) =>
    one.length === 0 || other.length === 0 || one.some((own) => other.some((foreign) => patternsMeet(own, foreign)));
  fc.assert(
    fc.property(fc.array(side, many), (sides) => {
      const claims = sides.map((patterns) => ({
        outlines: () => (patterns.length === 0 ? undefined : patterns.map(outlineOf)),
      }));
      findsAll(claims, (one, other) => meet(sides[one], sides[other]));
    }),
    { numRuns: 300 },
  );
});

test("an index finds all token rules that overlap, whoever verifies the tokens", () => {
  const base = clusterOf("base", {});
  const jwt = fc.record({
    issuer: fc.constantFrom("i", "ii"),
    subjects: fc.array(wordOf("a", ":", "*"), { minLength: 1, maxLength: 2 }),
  });
  const review = fc.record({ agentNamespace: wordOf("a", "*"), agentServiceAccount: wordOf("a", "*") });
  const rule = fc.oneof(
    jwt.map((rule) => ({ kind: "jwt", audience: "all", jwks: { file: "/keys" }, ...rule }) as const),
    review.map((rule) => ({ kind: "tokenReview", audience: "all", ...rule }) as const),
  );
  fc.assert(
    fc.property(fc.array(rule, many), (rules) => {
      const claims = rules.flatMap((token) => tokenReservations({ ...base, agents: { ...base.agents, token } }));
      findsAll(claims, (one, other) => claims[one]?.overlaps?.(claims[other] ?? assert.fail()) === true);
    }),
    { numRuns: 300 },
  );
});
