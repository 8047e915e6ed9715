import assert from "node:assert/strict";
import { mkdirSync, promises, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { until } from "../shared/basics/testing/wait.ts";
import type { ConfigError } from "../shared/config/options.ts";
import type { FileCandidate } from "../shared/documents/resolve-conflicts.ts";
import { folderOf, pipeAt } from "../shared/documents/testing/files.ts";
import { parseRoutes, type Route, RouteStore, RouteTable, resolveRoutes } from "./routes.ts";

function route(...sni: [string, ...string[]]): Route {
  return { name: sni[0], sni, to: [{ host: "10.0.0.1", port: 8091 }], sendProxy: "off" };
}

test("a wildcard stands for every name under it and not for itself, and nothing is a default", () => {
  const table = new RouteTable([
    route("*.example.com", "*.eu.example.com", "blue.eu.example.com"),
    route("plain.example", "*.us.example"),
    route("__proto__"),
  ]);
  for (const [name, found] of [
    ["blue.eu.example.com", "*.example.com"],
    ["green.eu.example.com", "*.example.com"],
    ["a.b.example.com", "*.example.com"],
    ["eu.example.com", "*.example.com"],
    ["plain.example", "plain.example"],
    ["a.b.us.example", "plain.example"],
    ["us.example", undefined],
    ["a.plain.example", undefined],
    ["example.com", undefined],
    ["badexample.com", undefined],
    ["com", undefined],
    ["__proto__", "__proto__"],
    ["constructor", undefined],
    ["tostring", undefined],
  ] as const) {
    assert.equal(table.find(name)?.name, found, name);
  }
});

test("each document is a route, its names canonical", () => {
  const { routes, faults } = parseRoutes(`
# two clusters
sni: [Blue.Example.com., "*.blue.example.com"]
to: ["10.0.0.1:8091", "[2001:db8::1]:8091"]
sendProxy: v2
---
---
sni:
  - bücher.example
to:
  - culvert.books.svc:8091
sendProxy: off
`);
  assert.deepEqual(faults, []);
  assert.deepEqual(routes, [
    {
      name: "blue.example.com",
      document: 1,
      sni: ["blue.example.com", "*.blue.example.com"],
      to: [
        { host: "10.0.0.1", port: 8091 },
        { host: "2001:db8::1", port: 8091 },
      ],
      sendProxy: "v2",
    },
    {
      name: "xn--bcher-kva.example",
      document: 3,
      sni: ["xn--bcher-kva.example"],
      to: [{ host: "culvert.books.svc", port: 8091 }],
      sendProxy: "off",
    },
  ]);
});

test("a file without content has no routes", () => {
  for (const text of ["", "# nothing yet\n", "---\n", "---\n---\n"])
    assert.deepEqual(parseRoutes(text), { routes: [], faults: [] });
});

test("each fault names its document, its path and the cure", () => {
  const good = "sni: [a.example]\nto: [10.0.0.1:1]\n";
  for (const [text, ...faults] of [
    [`${good}---\nsni: []\nto: []\n`, /^document 2: sni is empty: name at least/, /^document 2: to is empty: name/],
    ["sni: a.example\nto: [h:1]", /^sni needs a list: /],
    ["sni: [[a.example]]\nto: [h:1]", /^sni\[0\] needs one value, not a list or a mapping\.$/],
    ["sni: [a.example]", /^to needs a list: /],
    ["sni: [10.0.0.1]\nto: [h:1]", /^sni\[0\] "10\.0\.0\.1" is an IP address.*write for example "blue/],
    ['sni: [a.example, "a.*.b"]\nto: [h:1]', /^sni\[1\] "a\.\*\.b": a star stands alone for the first label /],
    ["sni: ['*']\nto: [h:1]", /^sni\[0\] "\*": a star stands alone/],
    ["sni: [a.example]\nto: [h]", /^to\[0\] the target "h" has no port: write host:port/],
    ["sni: [a.example]\nto: [h:1]\nsendProxy: v1", /^sendProxy needs "v2" or "off"\.$/],
    [
      "sni: [a.example]\nto: [h:1]\nsendproxy: v2",
      /^the document has no key "sendproxy" \(did you mean sendProxy\?\)\.$/,
    ],
    ["- a.example", /^the document needs "key: value" lines with keys of sni, to, sendProxy\.$/],
    ["just text", /^the document needs "key: value" lines with keys of sni, to, sendProxy\.$/],
    ["sni: &a [a.example]\nto: *a", /^to is an alias .* at line 2, column 5: write the value out/],
    ["sni: [*.a.example]\nto: [h:1]", /^sni\[0\] is an alias .*: .* in quotes if it begins with \*\.$/],
    ["sni: [a.example\n", /^Flow sequence.* at line 2, column 1: .*close what \[ or \{ has opened\.$/],
    [`${good}---\n---\nsni: [a\n`, /^document 3: Flow sequence.* at line 6, column 1: /],
    ["sni: [a.example]\nsni: [b.example]\nto: [h:1]", /^sni is there twice at line 2, column 1: leave one/],
    ["sni: [a.example, A.example]\nto: [h:1]", /^sni names "a\.example" twice: leave one of them\.$/],
    [`sni: ${"[".repeat(5_000)}`, /^it is nested too deeply\.$/],
    [`to: [${Array.from({ length: 65 }, (_, at) => `h:${at + 1}`)}]\nsni: [a.example]`, /^to names more than 64/],
  ] as const) {
    const found = parseRoutes(text).faults;
    assert.equal(found.length, faults.length, `${text}\n${found.join("\n")}`);
    for (const [index, fault] of faults.entries()) assert.match(found[index] ?? "", fault);
  }
});

test("faults of a route are in plain words, whatever its values are", () => {
  const wrong = ["''", "7", "[]", "[[a]]", "[{a: b}]", "{}", "{a: {b: [c]}}", "!!null x"];
  const good: Readonly<Record<string, string>> = { sni: "[a.example]", to: "[10.0.0.1:1]", sendProxy: "v2" };
  const texts = wrong.flatMap((value) => [
    value,
    ...[...Object.keys(good), "nobody"].map((key) =>
      Object.entries({ ...good, [key]: value })
        .map(([name, written]) => `${name}: ${written}\n`)
        .join(""),
    ),
  ]);
  const told = texts.flatMap((text) => parseRoutes(text).faults);
  assert.ok(told.length > 30, `${told.length} faults`);
  for (const sentence of told)
    assert.doesNotMatch(sentence, /invalid input|expected|received|unrecognized|too (?:small|big)/i);
});

type RouteFile = FileCandidate<Route>;
const changed = (file: string, next: Route[], before: Route[] = []): RouteFile => ({ file, next, before });
const same = (file: string, routes: Route[]): RouteFile => ({ file, next: routes, before: routes });
const broken = (file: string, before: Route[] = []): RouteFile => ({ file, next: undefined, before });

/** The routes of these files that are in use, and the faults of the files. */
function resolved(files: readonly RouteFile[]) {
  const { inUse, problems } = resolveRoutes(files);
  const table = new RouteTable([...inUse.values()].flat());
  return { inUse, table, faults: problems.map(({ file, sentence }) => `${file}: ${sentence}`) };
}

const names = (files: RouteFile[]) =>
  resolved(files)
    .table.routes.map(({ name }) => name)
    .sort();

test("a broken file keeps the routes that it had, and touches no other", () => {
  const files = [broken("a", [route("a1")]), changed("b", [route("b2")], [route("b1")]), broken("c")];
  assert.deepEqual(names(files), ["a1", "b2"]);
});

test("a name that is claimed twice stays with the file that has it", () => {
  const files = [changed("a", [route("x", "y")], [route("a1")]), same("b", [route("x")])];
  assert.deepEqual(names(files), ["a1", "x"]);
  assert.deepEqual(resolved(files).faults, [
    'a: route "x": sni "x" is taken by route "x" (b): leave it in one route only.',
  ]);
  assert.equal(resolved(files).table.find("y"), undefined);
});

test("a name that is there twice in one file is a fault of that file", () => {
  const files = [changed("a", [route("x"), route("y", "x")])];
  assert.deepEqual(resolved(files).faults, [
    'a: route "y": sni "x" is taken by route "x" (a): leave it in one route only.',
  ]);
  assert.deepEqual(names(files), []);
});

test("a name can move from one file to another in one change, in either direction", () => {
  const [before, after] = [[route("a1"), route("x")], [route("a1")]];
  for (const [from, to] of [
    ["a", "b"],
    ["b", "a"],
  ] as const) {
    const files = [changed(from, after, before), changed(to, [route("x")], [])].sort((a, b) =>
      a.file < b.file ? -1 : 1,
    );
    assert.deepEqual(resolved(files).faults, []);
    assert.deepEqual(names(files), ["a1", "x"]);
  }
});

test("a refused file keeps the names that it wanted to give up, although others want them", () => {
  const [held, wanted] = [[route("x", "y")], [route("y", "z")]];
  const files = [changed("a", [route("x")]), changed("b", wanted, held), same("c", [route("z")])];
  assert.deepEqual(names(files), ["x", "z"]);
  assert.equal(resolved(files).inUse.get("b"), held);
  assert.deepEqual(
    resolved(files).faults.map((fault) => fault.replace(/ is taken .*/, "")),
    ['a: route "x": sni "x"', 'b: route "y": sni "z"'],
  );
});

test("a file that is edited keeps its names from a newcomer that is read before it", () => {
  const files = [changed("a", [route("x")]), changed("b", [route("x"), route("y")], [route("x")])];
  assert.deepEqual(names(files), ["x", "y"]);
  assert.equal(resolved(files).table.find("x")?.name, "x");
  assert.deepEqual(resolved(files).inUse.get("a"), []);
});

/** Names of a route that is in use, and of one that comes second. */
for (const [first, second] of [
  ["*.blue.example", "a.blue.example"],
  ["a.blue.example", "*.blue.example"],
  ["*.blue.example", "a.b.blue.example"],
  ["*.example", "*.blue.example"],
  ["*.blue.example", "*.example"],
] as const) {
  test(`"${second}" is refused beside "${first}" of another route, in another file or in the same`, () => {
    const before = [route(first)];
    const newcomer = { ...route("fine.example.org", second), document: 2 };
    const found = resolved([changed("a", [newcomer]), same("b", before)]);
    assert.deepEqual(found.table.routes, before);
    assert.deepEqual(found.faults, [
      `a: document 2: route "fine.example.org": sni "${second}" overlaps sni "${first}" of route "${first}" (b): leave it in one route only.`,
    ]);
    const both = [{ ...route(first), document: 1 }, newcomer];
    assert.deepEqual(resolved([changed("a", both, before)]).faults, [
      `a: document 2: route "fine.example.org": sni "${second}" overlaps sni "${first}" of route "${first}" (a, document 1): leave it in one route only.`,
    ]);
  });
}

test("names that only look alike stand beside each other, and one route may have a wildcard and names under it", () => {
  const routes = [
    [route("*.blue.example", "a.blue.example", "blue.example")],
    [route("xblue.example", "*.xblue.example")],
    [route("*.red.example")],
    [route("red.example")],
  ];
  const found = resolved(routes.map((one, index) => changed(String(index), one)));
  assert.deepEqual(found.faults, []);
});

test("whatever routes come, go and overlap, no two in use overlap, and no file loses a name that it had and still wants", () => {
  const name = fc.constantFrom("a.x", "b.x", "*.x", "c.a.x", "*.a.x", "y", "*.y", "a.y");
  const file = fc.array(fc.uniqueArray(name, { minLength: 1, maxLength: 2 }), { maxLength: 2 });
  const version = fc.array(fc.option(file), { minLength: 4, maxLength: 4 });
  const overlap = (one: string, other: string) =>
    one === other ||
    (one.startsWith("*") && other.endsWith(one.slice(1))) ||
    (other.startsWith("*") && one.endsWith(other.slice(1)));
  fc.assert(
    fc.property(fc.array(version, { maxLength: 4 }), (versions) => {
      let inUse: ReadonlyMap<string, readonly Route[]> = new Map();
      for (const files of versions) {
        const before = inUse;
        const candidates = files.map((texts, index): RouteFile => {
          const next = texts?.map((sni) => route(...(sni as [string, ...string[]])));
          return { file: String(index), next, before: before.get(String(index)) ?? [] };
        });
        inUse = resolved(candidates).inUse;
        const routes = [...inUse.values()].flat();
        for (const one of routes) {
          for (const other of routes.filter((other) => other !== one)) {
            assert.ok(!one.sni.some((own) => other.sni.some((its) => overlap(own, its))), `${one.sni} ${other.sni}`);
          }
        }
        for (const { file, next, before: had } of candidates) {
          assert.ok([next, had].includes(inUse.get(file) as Route[]));
        }
      }
    }),
  );
});

const yaml = (name: string, to = "10.0.0.1:1") => `sni: [${name}]\nto: ["${to}"]\n`;

const TIMING = { settleMs: 5, pollMs: 60_000, missingPollMs: 5 };

/** A store that is closed after the test, the reasons and messages that it logged, and how often it has read. */
async function open(t: TestContext, path: string, timing = TIMING) {
  const logged: string[] = [];
  const reads = { count: 0 };
  const log = {
    info: (_fields: object, message: string) => logged.push(message),
    error: (fields: object) => logged.push(String((fields as { reason: string }).reason)),
  };
  const store = await RouteStore.open({ path, log, timing, onRead: () => reads.count++ });
  t.after(() => store.close());
  return { store, logged, reads, names: () => store.table.routes.map(({ name }) => name).sort() };
}

test("files in the directory come, change and go, and others beside them are left alone", async (t) => {
  const path = folderOf(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  for (const name of ["notes.txt", ".hidden.yaml", "a.yaml~"]) writeFileSync(join(path, name), "no: [route");
  const { store, names } = await open(t, path);
  assert.deepEqual([names(), store.faults, store.files], [["a.example"], [], 1]);
  writeFileSync(join(path, "b.yml"), yaml("b.example"));
  await until(() => names().length === 2);
  writeFileSync(join(path, "b.yml"), yaml("c.example"));
  await until(() => names().includes("c.example"));
  rmSync(join(path, "a.yaml"));
  await until(() => names().length === 1);
  assert.deepEqual(store.faults, []);
});

test("a broken version keeps the last one and is logged once; a mended one is read again", async (t) => {
  const path = join(folderOf(t), "routes.yaml");
  writeFileSync(path, yaml("a.example"));
  const { store, logged, reads, names } = await open(t, path);
  writeFileSync(path, `${yaml("b.example")}to: []\n`);
  await until(() => store.faults.length > 0);
  assert.match(store.faults[0] ?? "", /routes\.yaml: to is there twice at line 3, column 1: /);
  assert.deepEqual(names(), ["a.example"]);
  writeFileSync(path, yaml("b.example"));
  await until(() => names()[0] === "b.example");
  assert.deepEqual(store.faults, []);
  assert.match(logged.shift() ?? "", /^to is there twice/);
  assert.deepEqual(logged, ["a route file can be used again"]);
  assert.equal(reads.count, 2);
});

test("a broken file that stays as it is counts as read once, however often the files are checked", async (t) => {
  const path = folderOf(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, reads, names } = await open(t, path, { ...TIMING, pollMs: 2 });
  writeFileSync(join(path, "a.yaml"), "sni: []\n");
  await until(() => store.faults.length > 0);
  const checks = t.mock.method(promises, "readdir").mock;
  await until(() => checks.callCount() > 5);
  assert.deepEqual([reads.count, names()], [1, ["a.example"]]);
});

test("a directory that has gone is a fault, and the routes stay", async (t) => {
  const path = join(folderOf(t), "routes");
  mkdirSync(path);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, names } = await open(t, path);
  renameSync(path, `${path}.old`);
  await until(() => store.faults.length > 0);
  assert.deepEqual(store.faults, [`${path}: it does not exist.`]);
  assert.deepEqual(names(), ["a.example"]);
  renameSync(`${path}.old`, path);
  await until(() => store.faults.length === 0);
});

test("a start with a file that is too large, a directory or a pipe fails with each of them", async (t) => {
  const path = folderOf(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  writeFileSync(join(path, "b.yaml"), `#${" ".repeat(1_048_576)}`);
  mkdirSync(join(path, "c.yaml"));
  using _pipe = pipeAt(join(path, "d.yaml"));
  await assert.rejects(open(t, path), (error: ConfigError) => {
    assert.deepEqual(error.problems, [
      `--routes: ${join(path, "b.yaml")}: it is larger than 1 MiB: put its routes into several files.`,
      `--routes: ${join(path, "c.yaml")}: it is a directory, and a file is expected.`,
      `--routes: ${join(path, "d.yaml")}: it cannot be read: it is a pipe, a socket or a device, not a regular file.`,
    ]);
    return true;
  });
});

test("a single file that is removed is a fault that counts as read once, however often it is looked for", async (t) => {
  const path = join(folderOf(t), "routes.yaml");
  writeFileSync(path, yaml("a.example"));
  const { store, logged, reads, names } = await open(t, path, { ...TIMING, pollMs: 2 });
  rmSync(path);
  await until(() => store.faults.length > 0);
  // A store that has lost its directory looks again after a second.
  const checks = t.mock.method(promises, "readdir").mock;
  await until(() => checks.callCount() > 5);
  assert.deepEqual([reads.count, names(), logged], [1, ["a.example"], ["it does not exist."]]);
});
