import assert from "node:assert/strict";
import { test } from "node:test";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import type { Cluster } from "./cluster.ts";
import { MaterialFiles } from "./material.ts";
import { loadClusterFile, parseClusterFile } from "./read.ts";
import { settle } from "./settle.ts";
import { clusterText } from "./testing.ts";

const NOTHING: readonly Cluster[] = [];
/** What a document that leaves its CAs out is judged by. */
const FLAGS = {
  agents: (await certificateOf({ cn: "CA of --cluster-ca-cert" })).cert,
  callers: (await certificateOf({ cn: "CA of --server-ca-cert" })).cert,
};

function clusters(file: string, ...texts: string[]): readonly Cluster[] {
  const loaded = loadClusterFile(parseClusterFile(file, texts.join("\n---\n")), new MaterialFiles());
  assert.deepEqual(loaded.faults, []);
  return loaded.clusters;
}

/** As `clusterText`, with this name on the agents' port. */
function named(name: string, sni: string): string {
  return clusterText(name).replace(`${name}.agents.example`, sni);
}

function problemsOf(settled: ReturnType<typeof settle>): string[] {
  return settled.problems.map(({ file, sentence }) => `${file}: ${sentence}`);
}

test("clusters with names and identities of their own stand beside each other under one CA", () => {
  const settled = settle(
    ["a", "b", "c"].map((name) => ({ file: name, before: NOTHING, next: clusters(name, clusterText(name)) })),
  );
  assert.deepEqual(settled.problems, []);
  assert.equal([...settled.inUse.values()].flat().length, 3);
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
    /each needs agents\.sni, and this one has none/,
  ],
  [
    "every name of the first",
    "name: blue\nagents: {identities: [CN=blue]}\ncallers: {uds: /b}",
    clusterText("red"),
    /cluster "blue" \(a\) has none and answers to every name/,
  ],
  [
    "a CA without identities",
    clusterText("blue"),
    clusterText("red").replace('["CN=red"]', "[]"),
    /agents\.ca is left out, .* also that of cluster "blue" \(a\), and agents\.identities is missing here/,
  ],
  [
    "a CA that the first believes without identities",
    clusterText("blue").replace('["CN=blue"]', "[]"),
    clusterText("red"),
    /cluster "blue" \(a\) has no identities for it/,
  ],
] as const) {
  test(`whoever comes second to ${what} is the problem, whatever the order of the files`, () => {
    for (const newcomer of ["b", "0"]) {
      const before = clusters("a", first);
      const settled = settle(
        [
          { file: newcomer, before: NOTHING, next: clusters(newcomer, second) },
          { file: "a", before, next: before },
        ],
        FLAGS,
      );
      assert.equal(settled.inUse.get("a"), before);
      assert.deepEqual(settled.inUse.get(newcomer), []);
      assert.ok(settled.problems.every(({ file }) => file === newcomer));
      assert.ok(
        problemsOf(settled).some((problem) => sentence.test(problem)),
        problemsOf(settled).join("\n"),
      );
    }
  });
}

test("two documents of one file that are in each other's way are told apart by their numbers", () => {
  const next = clusters("a", clusterText("blue"), "# nothing", clusterText("blue"));
  const [first] = problemsOf(settle([{ file: "a", before: NOTHING, next }]));
  assert.equal(
    first,
    'a: document 3: cluster "blue": the name "blue" is taken by cluster "blue" (a, document 1): give one of them another.',
  );
});

test("a name may move from one cluster to another in one change", () => {
  const settled = settle([
    { file: "a", before: clusters("a", named("blue", "x.example")), next: clusters("a", named("blue", "y.example")) },
    { file: "b", before: clusters("b", named("red", "y.example")), next: clusters("b", named("red", "x.example")) },
  ]);
  assert.deepEqual(settled.problems, []);
});

test("a cluster may move to another file", () => {
  const settled = settle([
    { file: "a", before: clusters("a", clusterText("blue")), next: NOTHING },
    { file: "b", before: NOTHING, next: clusters("b", clusterText("blue")) },
  ]);
  assert.deepEqual(settled.problems, []);
});

test("a file that keeps its old version keeps its names from those who were about to take them", () => {
  const old = clusters("a", named("blue", "x.example"));
  const settled = settle([
    // Gives up x.example, but wants what c has: it stays as it was.
    { file: "a", before: old, next: clusters("a", named("blue", "z.example")) },
    { file: "b", before: NOTHING, next: clusters("b", named("red", "x.example")) },
    { file: "c", before: clusters("c", named("green", "z.example")), next: undefined },
  ]);
  assert.equal(settled.inUse.get("a"), old);
  assert.deepEqual(settled.inUse.get("b"), []);
  assert.deepEqual(
    settled.problems.map(({ file }) => file),
    ["a", "b"],
  );
});

test("clusters that leave their CA to a server that has none share nothing", () => {
  const open = (name: string) => clusterText(name).replace(`["CN=${name}"]`, "[]");
  const files = ["a", "b"].map((name) => ({ file: name, before: NOTHING, next: clusters(name, open(name)) }));
  assert.deepEqual(problemsOf(settle(files)), []);
  assert.deepEqual(problemsOf(settle(files, { agents: "", callers: "" })), []);
  assert.match(problemsOf(settle(files, FLAGS)).join(), /agents\.ca is left out, and the server's is also that of/);
});

test("whoever drops its identities under a shared CA is the problem, not those who were there", () => {
  const before = clusters("a", clusterText("blue"));
  const other = clusters("b", clusterText("red"));
  const settled = settle(
    [
      { file: "a", before, next: clusters("a", clusterText("blue").replace('["CN=blue"]', "[]")) },
      { file: "b", before: other, next: other },
    ],
    FLAGS,
  );
  assert.deepEqual(
    settled.inUse,
    new Map([
      ["a", before],
      ["b", other],
    ]),
  );
  assert.equal(settled.problems[0]?.file, "a");
});

test("two clusters of one file may not have one name", () => {
  const settled = settle([
    { file: "a", before: NOTHING, next: clusters("a", clusterText("blue"), clusterText("blue")) },
  ]);
  assert.deepEqual(settled.inUse.get("a"), []);
});

test("clusters that conflict by other CAs in the flags both stay in use, and the second is a problem until it is mended", () => {
  const before = ["a", "b"].map((name) => clusters(name, clusterText(name, "").replace(`["CN=${name}"]`, "['CN=*']")));
  const files = before.map((inUse, index) => ({ file: index === 0 ? "a" : "b", before: inUse, next: inUse }));
  const none = {};
  const settled = settle(files, FLAGS, none);
  assert.deepEqual([...settled.inUse.values()], before);
  assert.deepEqual(
    settled.problems.map(({ file }) => file),
    ["b"],
  );
  assert.match(settled.problems[0]?.sentence ?? "", /one certificate can have "CN=\*" here and "CN=\*" there/);
  const mended = clusters("b", clusterText("b"));
  const open = [{ file: "a", before: before[0] ?? [], next: clusters("a", clusterText("a")) }];
  const next = [...open, { file: "b", before: before[1] ?? [], next: mended }];
  assert.deepEqual(settle(next, FLAGS, none).problems, []);
});
