import assert from "node:assert/strict";
import { test } from "node:test";
import type { Route } from "./routes.ts";
import { type RouteFile, settleRoutes } from "./settle-routes.ts";

function route(...sni: [string, ...string[]]): Route {
  return { name: sni[0], sni, to: [{ host: "10.0.0.1", port: 1 }], sendProxy: "off" };
}

const changed = (path: string, routes: Route[], inUse: Route[] = []): RouteFile => ({
  path,
  documents: { routes },
  inUse,
});
const same = (path: string, routes: Route[]): RouteFile => ({ path, documents: { routes }, inUse: routes });
const broken = (path: string, inUse: Route[] = []): RouteFile => ({ path, documents: { faults: ["no."] }, inUse });

const names = (files: RouteFile[]) =>
  settleRoutes(files)
    .table.routes.map(({ name }) => name)
    .sort();

test("a broken file keeps the routes that it had, and touches no other", () => {
  const files = [broken("a", [route("a1")]), changed("b", [route("b2")], [route("b1")]), broken("c")];
  assert.deepEqual(names(files), ["a1", "b2"]);
  assert.deepEqual(settleRoutes(files).faults, ["a: no.", "c: no."]);
});

test("a name that is claimed twice stays with the file that has it", () => {
  const files = [changed("a", [route("x", "y")], [route("a1")]), same("b", [route("x")])];
  assert.deepEqual(names(files), ["a1", "x"]);
  assert.deepEqual(settleRoutes(files).faults, ['a: "x" is claimed twice, also in b: leave it in one route only.']);
  assert.equal(settleRoutes(files).table.find("y"), undefined);
});

test("a name that is there twice in one file is a fault of that file", () => {
  const files = [changed("a", [route("x"), route("y", "x")])];
  assert.deepEqual(settleRoutes(files).faults, ['a: "x" is claimed twice, also in a: leave it in one route only.']);
  assert.deepEqual(names(files), []);
});

test("a name can move from one file to another in one change, in either direction", () => {
  const [before, after] = [[route("a1"), route("x")], [route("a1")]];
  for (const [from, to] of [
    ["a", "b"],
    ["b", "a"],
  ] as const) {
    const files = [changed(from, after, before), changed(to, [route("x")], [])].sort((a, b) =>
      a.path < b.path ? -1 : 1,
    );
    assert.deepEqual(settleRoutes(files).faults, []);
    assert.deepEqual(names(files), ["a1", "x"]);
  }
});

test("old routes whose name another file has taken over meanwhile are not kept", () => {
  const files = [same("a", [route("x")]), broken("b", [route("x")])];
  assert.deepEqual(names(files), ["x"]);
});
