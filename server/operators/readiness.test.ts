import assert from "node:assert/strict";
import { test } from "node:test";
import { readiness, type ServerCondition } from "./readiness.ts";

const NOW = new Date("2026-06-01T00:00:00Z");
const CERTIFICATE = {
  name: "agents",
  notBefore: new Date("2026-05-01T00:00:00Z"),
  notAfter: new Date("2026-07-01T00:00:00Z"),
  problem: undefined,
};
const WELL: ServerCondition = {
  listeners: [{ name: "agents", up: true }],
  certificates: [CERTIFICATE],
  ends: [],
  warnings: [],
  files: [],
  draining: false,
  agents: 0,
  canAskOthers: false,
  readyNeedsAgent: false,
  tokenReviews: [],
  readyNeedsTokenReview: false,
};

const FAILING = { state: "failing", fault: "it does not answer", hasAnswered: false } as const;
const ANSWERING = { cluster: "red", reach: { state: "answers" } } as const;

const TABLE: ReadonlyArray<
  readonly [sentence: string, change: Partial<ServerCondition>, failed: string[], says?: RegExp]
> = [
  ["a server without agents is ready", {}, []],
  ["unless it was told to need one", { readyNeedsAgent: true }, ["agents"], /0 connected/],
  ["with an agent it is ready then", { readyNeedsAgent: true, agents: 1 }, []],
  [
    "a server without agents that can ask others serves callers, too",
    { readyNeedsAgent: true, canAskOthers: true },
    [],
    /^0 connected; CONNECTs go to other servers$/m,
  ],
  ["a draining server is not ready", { draining: true }, ["not-draining"]],
  [
    "a listener that is not open is named",
    { listeners: [{ name: "callers", up: false }] },
    ["listeners"],
    /^callers not open$/m,
  ],
  [
    "a listener that was lost says why",
    { listeners: [{ name: "unix socket", up: false, problem: "/run/s was removed" }] },
    ["listeners"],
    /^unix socket not open \(\/run\/s was removed\)$/m,
  ],
  ["a certificate is shown with its end", {}, [], /^agents: good until 2026-07-01T00:00:00\.000Z$/m],
  [
    "an expired certificate is not ready",
    { certificates: [{ ...CERTIFICATE, notAfter: NOW }] },
    ["certificates"],
    /^agents: expired on 2026-06-01T00:00:00\.000Z$/m,
  ],
  [
    "a certificate that is not yet valid is not ready",
    { certificates: [{ ...CERTIFICATE, notBefore: new Date("2026-06-02T00:00:00Z") }] },
    ["certificates"],
    /^agents: not valid before 2026-06-02T00:00:00\.000Z$/m,
  ],
  ["one that is valid from now on is good", { certificates: [{ ...CERTIFICATE, notBefore: NOW }] }, []],
  [
    "a broken new certificate is told beside the old one that works, and sends nobody away",
    { certificates: [{ ...CERTIFICATE, problem: "the key does not belong to it" }] },
    [],
    /^agents: good until 2026-07-01\S+, kept because its files are not usable now \(the key does not belong to it\)$/m,
  ],
  [
    "a server that has no file descriptors left is not ready",
    { files: [{ name: "file-descriptors", ok: false, detail: "999 of 1000 in use" }] },
    ["file-descriptors"],
    /^999 of 1000 in use$/m,
  ],
  [
    "a certificate that ends soon is told beside the others, and sends nobody away",
    { ends: ["the CA of --cluster-ca-cert ends within 7 days"] },
    [],
    /^agents: good until \S+; warning: the CA of --cluster-ca-cert ends within 7 days$/m,
  ],
  [
    "of many that end soon the first are told one by one",
    { ends: Array.from({ length: 12 }, (_, index) => `CA ${index + 1} ends`) },
    [],
    /; warning: CA 10 ends; warning: 2 more end soon$/m,
  ],
  [
    "an API server that cannot be asked about tokens is a warning",
    { tokenReviews: [{ cluster: "blue", reach: FAILING }, ANSWERING] },
    [],
    /^1 of 2 API servers answer; warning: cluster "blue": it does not answer$/m,
  ],
  [
    "where readiness needs one, a server that no API server has answered is not ready",
    { tokenReviews: [{ cluster: "blue", reach: FAILING }], readyNeedsTokenReview: true },
    ["token-reviews"],
  ],
  [
    "nor is one that has asked and not heard yet",
    { tokenReviews: [{ cluster: "blue", reach: { state: "untried" } }], readyNeedsTokenReview: true },
    ["token-reviews"],
  ],
  [
    "one that was answered once stays ready",
    { tokenReviews: [{ cluster: "blue", reach: { ...FAILING, hasAnswered: true } }], readyNeedsTokenReview: true },
    [],
  ],
  [
    "one cluster's API server that is down keeps nobody else out",
    { tokenReviews: [{ cluster: "blue", reach: FAILING }, ANSWERING], readyNeedsTokenReview: true },
    [],
  ],
  ["a server whose clusters ask no API server does not need one", { readyNeedsTokenReview: true }, []],
  [
    "the number of servers is shown with what counts it",
    { replicas: { servers: 3, source: "leases with a=b", fault: undefined } },
    [],
    /^3 \(leases with a=b\)$/m,
  ],
  [
    "a server that cannot count stays ready, and says why",
    { replicas: { servers: undefined, source: "leases", fault: "it answers 403" } },
    [],
    /^the number is not known yet \(leases\); warning: it answers 403$/m,
  ],
  ["a warning is told as one", { warnings: ["mind the gap"] }, [], /^warning: mind the gap$/m],
];

for (const [sentence, change, failed, says] of TABLE) {
  test(sentence, () => {
    const checks = readiness({ ...WELL, ...change }, "names", NOW);
    assert.deepEqual(
      checks.filter(({ ok }) => !ok).map(({ name }) => name),
      failed,
    );
    if (says !== undefined) assert.match(checks.map(({ detail }) => detail).join("\n"), says);
  });
}

test("a server without agents, whose callers no other server can serve, is ready with a fault", () => {
  const hasFaults = (change: Partial<ServerCondition>) =>
    readiness({ ...WELL, ...change }, "names", NOW).find(({ name }) => name === "agents")?.hasFaults;
  assert.deepEqual([hasFaults({}), hasFaults({ agents: 1 }), hasFaults({ canAskOthers: true })], [true, false, false]);
});

test("a broken document of a cluster is shown as a fault, and the server stays ready", () => {
  const clusters = (faults: string[]) => {
    const check = readiness({ ...WELL, clusters: faults }, "names", NOW).find(({ name }) => name === "clusters");
    return [check?.ok, check?.hasFaults, check?.detail];
  };
  assert.deepEqual(clusters([]), [true, false, ""]);
  assert.deepEqual(clusters(["/c/a.yaml: name is missing"]), [true, true, "1 fault: /c/a.yaml: name is missing"]);
  assert.deepEqual(clusters(["a: x", "b: y"]), [true, true, "2 faults: a: x; b: y"]);
});

test("where only counts are shown, no path and no name of a cluster is among them, and what fails is the same", () => {
  const problem = "/run/secret/red.key is not there";
  const listeners = [{ name: "unix socket", up: false, problem }];
  const certificates = [{ ...CERTIFICATE, problem, notAfter: NOW }];
  const condition = {
    ...WELL,
    listeners,
    certificates,
    ends: [problem],
    warnings: [problem],
    clusters: [problem, problem],
    replicas: { servers: 2, source: problem, fault: problem },
  };
  const checks = readiness(condition, "counts", NOW);
  const shown = checks.map(({ name, detail }) => `${name} ${detail ?? ""}`).join("\n");
  assert.doesNotMatch(shown, /\bred\b|\/run/);
  assert.match(shown, /^configuration 1 warning, named at \/readyz\?verbose of the admin port$/m);
  assert.match(shown, /^certificates .*; 1 warning, named at /m);
  assert.match(shown, /^clusters 2 faults, named at /m);
  assert.match(shown, /^listeners unix socket not open \(named at /m);
  assert.match(shown, /^servers 2; 1 warning, named at /m);
  const failed = (all: typeof checks): string[] => all.filter(({ ok }) => !ok).map(({ name }) => name);
  assert.deepEqual(failed(checks), failed(readiness(condition, "names", NOW)));
});
