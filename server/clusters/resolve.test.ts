import assert from "node:assert/strict";
import { test } from "node:test";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import type { Cluster } from "./cluster.ts";
import { MaterialFiles, parseClusterFile } from "./read.ts";
import { resolveClusters } from "./reservations.ts";
import { clusterText } from "./testing/clusters.ts";

const NOTHING: readonly Cluster[] = [];
/** The CAs for a document that leaves its own out. */
const FLAGS = {
  agents: (await certificateOf({ cn: "CA of --cluster-ca-cert" })).cert,
  callers: (await certificateOf({ cn: "CA of --server-ca-cert" })).cert,
};

function clusters(file: string, ...texts: string[]): readonly Cluster[] {
  const loaded = parseClusterFile(file, texts.join("\n---\n"), new MaterialFiles()).load();
  assert.deepEqual(loaded.faults, []);
  return loaded.documents;
}

/** As `clusterText`, with this name on the agents' port. */
function named(name: string, sni: string): string {
  return clusterText(name).replace(`${name}.agents.example`, sni);
}

function problemsOf(resolved: ReturnType<typeof resolveClusters>): string[] {
  return resolved.problems.map(({ file, sentence }) => `${file}: ${sentence}`);
}

test("clusters with names and identities of their own stand beside each other under one CA", () => {
  const resolved = resolveClusters(
    ["a", "b", "c"].map((name) => ({ file: name, before: NOTHING, next: clusters(name, clusterText(name)) })),
  );
  assert.deepEqual(resolved.problems, []);
  assert.equal([...resolved.inUse.values()].flat().length, 3);
});

/** Two files of which the first was there; what the second is told. */
for (const [what, first, second, sentence] of [
  ["a name", clusterText("blue"), clusterText("blue"), /the name "blue" is taken by cluster "blue" \(a\)/],
  [
    "a name in SNI",
    named("blue", "x.example"),
    named("red", "X.example."),
    /agents\.sni "x\.example" is taken by cluster "blue" \(a\)/,
  ],
  [
    "a wildcard",
    named("blue", '"*.x.example"'),
    named("red", '"*.x.example"'),
    /agents\.sni "\*\.x\.example" is taken/,
  ],
  [
    "a socket",
    clusterText("blue").replace("callers:", "callers:\n  uds: /run/x.sock"),
    clusterText("red").replace("callers:", "callers:\n  uds: /run/x.sock"),
    /callers\.uds "\/run\/x\.sock" is taken by cluster "blue"/,
  ],
  [
    "every name",
    clusterText("blue"),
    "name: red\nagents: {identities: [CN=red]}\ncallers: {uds: /r}",
    /agents\.sni \(left out: every name\) overlaps "blue\.agents\.example" of cluster "blue" .* each needs agents\.sni/,
  ],
  [
    "every name of the first",
    "name: blue\nagents: {identities: [CN=blue]}\ncallers: {uds: /b}",
    clusterText("red"),
    /"red\.agents\.example" overlaps agents\.sni \(left out: every name\) of cluster "blue" \(a\)/,
  ],
  [
    "a CA without identities",
    clusterText("blue"),
    clusterText("red").replace('["CN=red"]', "[]"),
    /agents\.ca \(left out: the server's\) without agents\.identities overlaps .* of cluster "blue" \(a\)/,
  ],
  [
    "a CA that the first believes without identities",
    clusterText("blue").replace('["CN=blue"]', "[]"),
    clusterText("red"),
    /overlaps agents\.ca \(left out: the server's\) without agents\.identities of cluster "blue" \(a\)/,
  ],
] as const) {
  test(`the second document that wants ${what} is the problem, whatever the order of the files`, () => {
    for (const newcomer of ["b", "0"]) {
      const before = clusters("a", first);
      const resolved = resolveClusters(
        [
          { file: newcomer, before: NOTHING, next: clusters(newcomer, second) },
          { file: "a", before, next: before },
        ],
        FLAGS,
      );
      assert.equal(resolved.inUse.get("a"), before);
      assert.deepEqual(resolved.inUse.get(newcomer), []);
      assert.ok(resolved.problems.every(({ file }) => file === newcomer));
      assert.ok(
        problemsOf(resolved).some((problem) => sentence.test(problem)),
        problemsOf(resolved).join("\n"),
      );
    }
  });
}

test("two documents of one file that conflict are named by their numbers", () => {
  const next = clusters("a", clusterText("blue"), "# nothing", clusterText("blue"));
  const [first] = problemsOf(resolveClusters([{ file: "a", before: NOTHING, next }]));
  assert.equal(
    first,
    'a: document 3: cluster "blue": the name "blue" is taken by cluster "blue" (a, document 1): give one of them another.',
  );
});

test("a name may move from one cluster to another in one change", () => {
  const resolved = resolveClusters([
    { file: "a", before: clusters("a", named("blue", "x.example")), next: clusters("a", named("blue", "y.example")) },
    { file: "b", before: clusters("b", named("red", "y.example")), next: clusters("b", named("red", "x.example")) },
  ]);
  assert.deepEqual(resolved.problems, []);
});

test("files that exchange a name keep what they have while a third file conflicts, and exchange it when it is mended", () => {
  const before = [clusters("a", named("blue", "x.example")), clusters("b", named("red", "y.example"))];
  const next = [clusters("a", named("blue", "y.example")), clusters("b", named("red", "x.example"))];
  const files = ["a", "b"].map((file, at) => ({ file, before: before[at] ?? NOTHING, next: next[at] ?? NOTHING }));
  const wrong = { file: "c", before: NOTHING, next: clusters("c", named("green", "x.example")) };
  assert.deepEqual([...resolveClusters([...files, wrong]).inUse.values()], [...before, NOTHING]);
  const mended = { ...wrong, next: clusters("c", named("green", "z.example")) };
  assert.deepEqual([...resolveClusters([...files, mended]).inUse.values()], [...next, mended.next]);
});

test("a cluster may move to another file", () => {
  const resolved = resolveClusters([
    { file: "a", before: clusters("a", clusterText("blue")), next: NOTHING },
    { file: "b", before: NOTHING, next: clusters("b", clusterText("blue")) },
  ]);
  assert.deepEqual(resolved.problems, []);
});

test("a file that keeps its last version keeps its names, although others want them", () => {
  const old = clusters("a", named("blue", "x.example"));
  const resolved = resolveClusters([
    // Gives up x.example, but wants what c has: it stays as it was.
    { file: "a", before: old, next: clusters("a", named("blue", "z.example")) },
    { file: "b", before: NOTHING, next: clusters("b", named("red", "x.example")) },
    { file: "c", before: clusters("c", named("green", "z.example")), next: undefined },
  ]);
  assert.equal(resolved.inUse.get("a"), old);
  assert.deepEqual(resolved.inUse.get("b"), []);
  assert.deepEqual(
    resolved.problems.map(({ file }) => file),
    ["a", "b"],
  );
});

test("clusters that leave their CA to a server that has none share nothing", () => {
  const open = (name: string) => clusterText(name).replace(`["CN=${name}"]`, "[]");
  const files = ["a", "b"].map((name) => ({ file: name, before: NOTHING, next: clusters(name, open(name)) }));
  assert.deepEqual(problemsOf(resolveClusters(files)), []);
  assert.deepEqual(problemsOf(resolveClusters(files, { agents: "", callers: "" })), []);
  assert.match(
    problemsOf(resolveClusters(files, FLAGS)).join(),
    /agents\.ca \(left out: the server's\) without agents\.identities is taken by/,
  );
});

test("a document that drops its identities under a shared CA is the problem, not the others", () => {
  const before = clusters("a", clusterText("blue"));
  const other = clusters("b", clusterText("red"));
  const resolved = resolveClusters(
    [
      { file: "a", before, next: clusters("a", clusterText("blue").replace('["CN=blue"]', "[]")) },
      { file: "b", before: other, next: other },
    ],
    FLAGS,
  );
  assert.deepEqual(
    resolved.inUse,
    new Map([
      ["a", before],
      ["b", other],
    ]),
  );
  assert.equal(resolved.problems[0]?.file, "a");
});

test("two clusters of one file may not have one name", () => {
  const resolved = resolveClusters([
    { file: "a", before: NOTHING, next: clusters("a", clusterText("blue"), clusterText("blue")) },
  ]);
  assert.deepEqual(resolved.inUse.get("a"), []);
});

test("clusters that conflict by other CAs in the flags both stay in use, and the second is a problem until it is mended", () => {
  const before = ["a", "b"].map((name) => clusters(name, clusterText(name, "").replace(`["CN=${name}"]`, "['CN=*']")));
  const files = before.map((inUse, index) => ({ file: index === 0 ? "a" : "b", before: inUse, next: inUse }));
  const resolved = resolveClusters(files, FLAGS);
  assert.deepEqual([...resolved.inUse.values()], before);
  assert.deepEqual(
    resolved.problems.map(({ file }) => file),
    ["b"],
  );
  assert.match(resolved.problems[0]?.sentence ?? "", /with the wildcard "CN=\*" is taken by cluster "a" \(a\)/);
  const mended = clusters("b", clusterText("b"));
  const open = [{ file: "a", before: before[0] ?? [], next: clusters("a", clusterText("a")) }];
  const next = [...open, { file: "b", before: before[1] ?? [], next: mended }];
  assert.deepEqual(resolveClusters(next, FLAGS).problems, []);
});

test("clusters of one file that conflict by other CAs in the flags both stay in use, and the file is a problem", () => {
  const before = clusters(
    "a",
    ...["blue", "red"].map((name) => clusterText(name).replace(`["CN=${name}"]`, "['CN=*']")),
  );
  const resolved = resolveClusters([{ file: "a", before, next: before }], FLAGS);
  assert.equal(resolved.inUse.get("a"), before);
  assert.match(
    problemsOf(resolved).join("\n"),
    /^a: document 2: .*is taken by cluster "blue" \(a, document 1\)[^\n]*$/,
  );
});

test("a document that gives up a wildcard lets another cluster in under the same CA in the same change", () => {
  const wildcard = clusters("a", clusterText("blue").replace("CN=blue", "CN=blue-*"));
  const candidates = (next: readonly Cluster[]) => [
    { file: "0", before: NOTHING, next: clusters("0", clusterText("red")) },
    { file: "a", before: wildcard, next },
  ];
  const refused = resolveClusters(candidates(wildcard), FLAGS);
  assert.deepEqual([refused.inUse.get("0"), refused.inUse.get("a")], [NOTHING, wildcard]);
  assert.match(
    problemsOf(refused).join("\n"),
    /^0: cluster "red": agents\.ca .* overlaps .* with the wildcard "CN=blue-\*" of cluster "blue" \(a\): clusters that share a CA, [^\n]*$/,
  );
  assert.deepEqual(problemsOf(resolveClusters(candidates(clusters("a", clusterText("blue"))), FLAGS)), []);
});

test("a file that conflicts with two others is told of both, and refuses nothing itself", () => {
  const withSocket = (name: string, path: string) => clusterText(name).replace("callers:", `callers:\n  uds: ${path}`);
  const both = withSocket("lime", "/run/red.sock").replace("lime.agents.example", "blue.agents.example");
  const resolved = resolveClusters(
    Object.entries({
      a: clusterText("blue"),
      b: withSocket("red", "/run/red.sock"),
      c: both,
      d: clusterText("gold").replace("gold.callers.example", "lime.callers.example"),
    }).map(([file, text]) => ({ file, before: NOTHING, next: clusters(file, text) })),
  );
  const told = problemsOf(resolved);
  assert.equal(resolved.inUse.get("d")?.[0]?.name, "gold");
  assert.equal(told.length, 3, told.join("\n"));
  assert.match(told.join("\n"), /c: .*agents\.sni "blue\.agents\.example" is taken by cluster "blue" \(a\)/);
  assert.match(told.join("\n"), /c: .*callers\.uds "\/run\/red\.sock" is taken by cluster "red" \(b\)/);
  assert.match(told.join("\n"), /c: .*callers\.sni "lime\.callers\.example" is taken by cluster "gold" \(d\)/);
});
