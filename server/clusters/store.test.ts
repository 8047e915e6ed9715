import assert from "node:assert/strict";
import { promises } from "node:fs";
import { mkdir, rename, symlink, unlink } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { KubernetesVolume } from "../../e2e/harness/kubernetes-volume.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { hugeFileAt, pipeAt } from "../../shared/documents/testing/files.ts";
import { tooFewFilesToStart } from "../../shared/limits/descriptor-shortage.ts";
import { ClusterStore } from "./store.ts";
import { ClusterFolder, clusterText, FAST, newMaterial } from "./testing/clusters.ts";

const silent = { info() {}, error() {} };

test("a folder is every .yaml and .yml in it, each with one document or several", async () => {
  await using folder = await ClusterFolder.create({
    "a.yaml": `${clusterText("blue")}\n---\n${clusterText("red")}\n---\n`,
    "b.yml": clusterText("green"),
    "c.txt": "not: [ours",
    ".hidden.yaml": "not: [ours",
  });
  const store = await folder.open();
  assert.deepEqual([...store.clusters.keys()], ["blue", "red", "green"]);
  assert.equal(store.names.agents.find("red.agents.example")?.name, "red");
  assert.equal(store.names.callers.find("red.agents.example"), undefined);
});

test("a listener gets all clusters first, then each difference", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": clusterText("blue") });
  const store = await folder.open();
  const told: string[] = [];
  const rest = { onChanged() {}, onRemoved() {} };
  store.listen({ ...rest, onAdded: ({ name }) => told.push(name) });
  assert.deepEqual(told, ["blue"]);
  store.listen(folder);
  folder.events.length = 0;
  await folder.write("red.yaml", clusterText("red"));
  await folder.emits("+red");
  await folder.write("red.yaml", clusterText("red", "suspended: true"));
  await folder.emits("~red");
  await unlink(folder.at("red.yaml"));
  await folder.emits("-red");
  assert.equal(store.names.agents.find("red.agents.example"), undefined);
});

test("a change names what differs, and no other cluster changes", async () => {
  await using folder = await ClusterFolder.create({
    "both.yaml": `${clusterText("blue")}\n---\n${clusterText("red")}`,
    "green.yaml": clusterText("green"),
  });
  await folder.open();
  await folder.write("both.yaml", `${clusterText("blue")}\n---\n${clusterText("red", "limits: {streams: 3}")}`);
  await folder.emits("~red");
  const side = { names: false, material: false, trust: false, crl: false };
  const rest = {
    maxAgents: false,
    routing: false,
    uds: false,
    fromClusters: false,
    allow: false,
    deny: false,
    allowedDestinations: false,
    suspended: false,
  };
  assert.deepEqual(folder.changes.get("red"), { agents: side, callers: side, ...rest, limits: true });
});

test("comments and white space are no change", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": clusterText("blue") });
  await folder.open();
  await folder.write("blue.yaml", `# the same\n${clusterText("blue")}\n\n`);
  await folder.write("red.yaml", clusterText("red"));
  await folder.emits("+red");
});

test("strategies and claims are routing, and callers of other clusters no trust", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": "name: blue\nagents: {strategies: [destHost]}" });
  await folder.open();
  const claims = "claims: [{identities: [CN=a], hosts: [a.example]}]";
  for (const [text, routing, fromClusters] of [
    [`name: blue\nagents: {strategies: [destHost], ${claims}}`, true, false],
    [`name: blue\nagents: {strategies: [destHost, cidr], ${claims}}`, true, false],
    [`name: blue\nagents: {strategies: [destHost, cidr], strictIdentifiers: true, ${claims}}`, true, false],
    [`name: blue\nagents: {strategies: [cidr], ${claims}}\ncallers: {fromClusters: [hub]}`, true, true],
  ] as const) {
    await folder.write("blue.yaml", text);
    await folder.emits("~blue");
    const what = folder.changes.get("blue");
    assert.deepEqual(
      [what?.routing, what?.fromClusters, what?.agents.trust, what?.callers.trust],
      [routing, fromClusters, false, false],
      text,
    );
  }
});

test("identities and sourceCIDRs are trust, of their side alone", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": "name: blue\ncallers: {identities: [CN=a]}" });
  await folder.open();
  await folder.write("blue.yaml", "name: blue\ncallers: {identities: [CN=b]}");
  await folder.emits("~blue");
  assert.deepEqual(folder.changes.get("blue")?.callers, { names: false, material: false, trust: true, crl: false });
  assert.equal(folder.changes.get("blue")?.agents.trust, false);
  await folder.write("blue.yaml", "name: blue\nagents: {sourceCIDRs: [10.0.0.0/8]}\ncallers: {identities: [CN=b]}");
  await folder.emits("~blue");
  assert.equal(folder.changes.get("blue")?.agents.trust, true);
});

test("certificates are read from beside the document, and again when they change", async () => {
  await using folder = await ClusterFolder.create();
  const [first, second] = [await newMaterial("one"), await newMaterial("two")];
  await mkdir(folder.at("pki"));
  for (const kind of ["ca", "cert", "key"] as const) await folder.write(`pki/${kind}`, first[kind]);
  const side = "cert: pki/cert, key: pki/key";
  await folder.write("blue.yaml", `name: blue\nagents: {${side}, ca: pki/ca}\ncallers: {${side}}`);
  const store = await folder.open();
  assert.equal(store.clusters.get("blue")?.agents.certificate?.cert, first.cert);
  assert.equal(store.clusters.get("blue")?.agents.ca, first.ca);
  assert.equal(store.clusters.get("blue")?.callers.ca, undefined);

  await folder.write("pki/ca", second.ca);
  await folder.emits("~blue");
  assert.deepEqual(folder.changes.get("blue")?.agents, { names: false, material: true, trust: true, crl: false });
  assert.deepEqual(folder.changes.get("blue")?.callers, { names: false, material: false, trust: false, crl: false });

  await folder.write("pki/cert", second.cert);
  await folder.hasProblems(/^agents\.key: the private key .*pki\/key does not belong to/, /^callers\.key: /);
  assert.equal(store.clusters.get("blue")?.agents.certificate?.cert, first.cert);
  await folder.write("pki/key", second.key);
  await folder.hasProblems();
  await folder.emits("~blue");
  assert.deepEqual(folder.changes.get("blue")?.callers, { names: false, material: true, trust: false, crl: false });
});

test("a broken file keeps its old version, says so once, and does not stop the others", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": clusterText("blue") });
  const store = await folder.open();
  await folder.write("blue.yaml", "name: blue\nagnets: {}");
  await folder.hasProblems(/^the document has no key "agnets" \(did you mean agents\?\)/);
  await folder.write("red.yaml", clusterText("red"));
  await folder.emits("+red");
  assert.equal(store.clusters.get("blue")?.agents.sni[0], "blue.agents.example");
  await folder.write("blue.yaml", clusterText("blue", "suspended: true"));
  await folder.emits("~blue");
  assert.deepEqual(store.problems(), []);
  assert.equal(folder.logged.filter((line) => line.startsWith("a cluster file cannot be used")).length, 1);
  assert.equal(folder.logged.filter((line) => line.startsWith("a cluster file can be used again")).length, 1);
});

test("a file that is empty for a moment takes nothing away", async () => {
  await using folder = await ClusterFolder.create({ "blue.yaml": clusterText("blue") });
  const store = await folder.open();
  await folder.write("blue.yaml", "");
  await folder.hasProblems(/holds no document/);
  assert.ok(store.clusters.has("blue"));
});

test("a swapped ..data changes what changed and nothing else", async () => {
  await using folder = await ClusterFolder.create();
  const volume = new KubernetesVolume(folder.at("volume"), {
    "blue.yaml": clusterText("blue"),
    "red.yaml": clusterText("red"),
  });
  await folder.open(volume.path);
  volume.update({ "blue.yaml": clusterText("blue"), "red.yaml": clusterText("red", "suspended: true") });
  await folder.emits("~red");
  volume.update({ "blue.yaml": clusterText("blue", "suspended: true") });
  await folder.emitsAll("-red", "~blue");
});

test("a swapped ..data is seen although nothing else in the folder moves", async () => {
  await using folder = await ClusterFolder.create();
  for (const generation of ["..1", "..2"]) await mkdir(folder.at(generation));
  await folder.write("..1/blue.yaml", clusterText("blue"));
  await folder.write("..2/blue.yaml", clusterText("blue", "suspended: true"));
  await symlink("..1", folder.at("..data"));
  await symlink("..2", folder.at("..data_tmp"));
  await symlink("..data/blue.yaml", folder.at("blue.yaml"));
  await folder.open();
  await rename(folder.at("..data_tmp"), folder.at("..data"));
  await folder.emits("~blue");
});

test("certificates in another volume are followed through its swaps", async () => {
  await using folder = await ClusterFolder.create({
    "blue.yaml": "name: blue\nagents: {cert: secret/tls.crt, key: secret/tls.key}",
  });
  const [first, second] = [await newMaterial("one"), await newMaterial("two")];
  const volume = new KubernetesVolume(folder.at("secret"), { "tls.crt": first.cert, "tls.key": first.key });
  await folder.open();
  volume.update({ "tls.crt": second.cert, "tls.key": second.key });
  await folder.emits("~blue");
  assert.equal(folder.store.clusters.get("blue")?.agents.certificate?.cert, second.cert);
});

test("one file with several documents is watched as a folder is", async () => {
  await using folder = await ClusterFolder.create({ "all.yaml": `${clusterText("blue")}\n---\n${clusterText("red")}` });
  const store = await folder.open(folder.at("all.yaml"));
  await folder.write("new.yaml", clusterText("red"));
  await rename(folder.at("new.yaml"), folder.at("all.yaml"));
  await folder.emits("-blue");
  await unlink(folder.at("all.yaml"));
  await folder.hasProblems(/does not exist/);
  assert.ok(store.clusters.has("red"));
});

test("a folder that has gone keeps its clusters, and counts again when it is back", async () => {
  await using folder = await ClusterFolder.create();
  await mkdir(folder.at("clusters"));
  await folder.write("clusters/blue.yaml", clusterText("blue"));
  const store = await folder.open(folder.at("clusters"));
  await rename(folder.at("clusters"), folder.at("elsewhere"));
  await folder.hasProblems(/does not exist/);
  assert.ok(store.clusters.has("blue"));
  await mkdir(folder.at("clusters"));
  await folder.write("clusters/red.yaml", clusterText("red"));
  await folder.emitsAll("-blue", "+red");
  await folder.hasProblems();
});

test("the first of two clusters with one name stays, and the other waits for it to go", async () => {
  await using folder = await ClusterFolder.create({ "z.yaml": clusterText("blue") });
  await folder.open();
  await folder.write("a.yaml", clusterText("blue"));
  await folder.hasProblems(
    /^cluster "blue": the name "blue" is taken by cluster "blue" \(.*z\.yaml\): give one/,
    /agents\.sni/,
    /callers\.sni/,
  );
  assert.match(folder.store.problems()[0]?.file ?? "", /a\.yaml$/);
  await unlink(folder.at("z.yaml"));
  await folder.hasProblems();
  assert.match(folder.store.clusters.get("blue")?.file ?? "", /a\.yaml$/);
  assert.deepEqual(folder.events, []);
});

test("faults of any file stop the start, each with file, path and cure", async () => {
  await using folder = await ClusterFolder.create({
    "blue.yaml": "name: blue\nagents: {ca: missing.crt}",
    "red.yaml": "name: red\nlimits: {strems: 3}",
    "two.yaml": "name: green\n---\nname: Yellow",
  });
  await assert.rejects(ClusterStore.open(folder.path, silent, { timing: FAST }), (error: ConfigError) => {
    assert.ok(error instanceof ConfigError);
    const [blue, red, two, ...rest] = error.problems;
    assert.match(
      blue ?? "",
      /^--clusters: .*blue\.yaml: agents\.ca: the CA certificate .*missing\.crt cannot be read: there is no such file\.$/,
    );
    assert.match(red ?? "", /red\.yaml: limits has no key "strems" \(did you mean streams\?\)/);
    assert.match(two ?? "", /two\.yaml: document 2: name needs a name like/);
    assert.deepEqual(rest, []);
    return true;
  });
  await assert.rejects(ClusterStore.open(folder.at("absent"), silent), /--clusters: .*absent: it does not exist/);
});

test("a pipe or a file that is too large, in place of a document or of what it names, is a fault and is not waited for", async () => {
  await using folder = await ClusterFolder.create({
    "ca.yaml": "name: one\nagents: {ca: pipe}",
    "crl.yaml": "name: two\nagents: {crl: huge}",
  });
  using _document = pipeAt(folder.at("pipe.yaml"));
  using _pipe = pipeAt(folder.at("pipe"));
  hugeFileAt(folder.at("huge.yaml"));
  hugeFileAt(folder.at("huge"));
  await assert.rejects(ClusterStore.open(folder.path, silent, { timing: FAST }), ({ problems }: ConfigError) => {
    assert.deepEqual(
      problems.map((problem) => problem.replace(/^--clusters: \/.*\/(.*\.yaml): /, "$1: ").replaceAll(folder.path, "")),
      [
        "ca.yaml: agents.ca: the CA certificate /pipe cannot be read: it is a pipe, a socket or a device, not a regular file.",
        "crl.yaml: agents.crl: the CRL file /huge cannot be read: it is larger than 4 MiB.",
        "huge.yaml: it is larger than 4 MiB: give each cluster a file of its own.",
        "pipe.yaml: it cannot be read: it is a pipe, a socket or a device, not a regular file.",
      ],
    );
    return true;
  });
});

/** From now on no file can be read. */
function takeDescriptors(t: TestContext, code: string) {
  return t.mock.method(promises, "open", () =>
    Promise.reject(Object.assign(new Error("words"), { code, syscall: "open" })),
  ).mock;
}

test("a want of file descriptors is one sentence, at the start as later, and takes no cluster away", async (t) => {
  await using folder = await ClusterFolder.create({ "blue.yaml": clusterText("blue"), "red.yaml": clusterText("red") });
  const store = await folder.open();
  for (const [code, whose] of Object.entries({ EMFILE: "process", ENFILE: "machine" })) {
    const mock = takeDescriptors(t, code);
    const sentence = `it cannot be read: this ${whose} has no file descriptor left.`;
    await assert.rejects(ClusterStore.open(folder.path, silent), (error: ConfigError) => {
      assert.deepEqual(error.problems, [`--clusters: ${folder.path}: ${sentence}`]);
      assert.match(tooFewFilesToStart(error) ?? "", new RegExp(`^this ${whose} .* start`));
      return true;
    });
    await folder.write("red.yaml", clusterText("red", `limits: {streams: ${code === "EMFILE" ? 3 : 4}}`));
    await folder.hasProblems(new RegExp(sentence));
    assert.deepEqual([...store.clusters.keys()], ["blue", "red"]);
    mock.restore();
    await folder.emits("~red"); // nothing moves in the folder meanwhile
    assert.deepEqual(store.problems(), []);
  }
});

test("an edit that met a want of file descriptors is seen by the next look, whichever file that is for", async (t) => {
  await using folder = await ClusterFolder.create({ "red.yaml": clusterText("red") });
  await folder.open();
  const mock = takeDescriptors(t, "EMFILE");
  await folder.write("red.yaml", clusterText("red", "suspended: true"));
  await folder.hasProblems(/no file descriptor left/);
  mock.restore();
  await folder.write("green.yaml", clusterText("green"));
  await folder.emits("~red", "+green");
  assert.deepEqual(
    folder.logged.map((line) => line.split(":")[0]),
    ["a cluster file cannot be used; its last version stays in use", "a cluster file can be used again"],
  );
});

test("other CAs in the flags that two clusters share are a problem at once, also after other files change, and until they go", async () => {
  const open = (name: string) => clusterText(name).replace(`["CN=${name}"]`, "[]");
  const { ca } = await newMaterial("flags");
  await using folder = await ClusterFolder.create({ "a.yaml": open("blue"), "b.yaml": clusterText("red") });
  let flags = {};
  const store = await ClusterStore.open(folder.path, silent, { timing: FAST, flags: () => flags });
  folder.store = store;
  store.listen(folder);
  folder.events.length = 0;
  flags = { agents: ca };
  await store.resolveAgain();
  await folder.hasProblems(
    /agents\.ca \(left out: the server's\) with "CN=red" overlaps .* of cluster "blue" \(\S+a\.yaml\)/,
  );
  await folder.write(
    "c.yaml",
    clusterText("lime")
      .replace(
        "agents:",
        "agents:\n  maxAgents: 1\n  token: {jwt: {issuer: i, audience: lime, jwks: k, subjects: [s]}}",
      )
      .replace('["CN=lime"]', "[]"),
  );
  await folder.emits("+lime");
  await folder.hasProblems(/agents\.ca \(left out/);
  assert.deepEqual([...store.clusters.keys()], ["blue", "red", "lime"]);
  flags = {};
  await store.resolveAgain();
  await folder.hasProblems();
});
