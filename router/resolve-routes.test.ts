import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { FileCandidate } from "../shared/documents/resolve-conflicts.ts";
import { resolveRoutes } from "./route-store.ts";
import { type Route, RouteTable } from "./routes.ts";

function route(...sni: [string, ...string[]]): Route {
  return { name: sni[0], sni, to: [{ host: "10.0.0.1", port: 1 }], sendProxy: "off" };
}

type RouteFile = FileCandidate<Route>;
const changed = (file: string, next: Route[], before: Route[] = []): RouteFile => ({ file, next, before });
const same = (file: string, routes: Route[]): RouteFile => ({ file, next: routes, before: routes });
const broken = (file: string, before: Route[] = []): RouteFile => ({ file, next: undefined, before });

/** What is in use of these files, and their faults. */
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
  assert.deepEqual(resolved(files).faults, ['a: sni "x" is taken by another route (b): leave it in one route only.']);
  assert.equal(resolved(files).table.find("y"), undefined);
});

test("a name that is there twice in one file is a fault of that file", () => {
  const files = [changed("a", [route("x"), route("y", "x")])];
  assert.deepEqual(resolved(files).faults, ['a: sni "x" is taken by another route (a): leave it in one route only.']);
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
    resolved(files).faults.map((fault) => fault.slice(0, 10)),
    ['b: sni "z"', 'a: sni "x"'],
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
      `a: document 2: sni "${second}" overlaps "${first}" of another route (b): leave it in one route only.`,
    ]);
    const both = [{ ...route(first), document: 1 }, newcomer];
    assert.deepEqual(resolved([changed("a", both, before)]).faults, [
      `a: document 2: sni "${second}" overlaps "${first}" of another route (a, document 1): leave it in one route only.`,
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
