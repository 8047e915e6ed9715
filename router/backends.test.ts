import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTarget } from "../shared/address/target.ts";
import { type Backend, Backends } from "./backends.ts";
import { type Route, RouteTable } from "./routes.ts";

function routeTo(...to: string[]): Route {
  return { name: "a.example", sni: ["a.example"], to: to.map(parseTarget), sendProxy: "off" };
}

function start(...to: string[]) {
  const route = routeTo(...to);
  const backends = new Backends();
  backends.use(new RouteTable([route]));
  const order = (now = 0) => backends.inOrder(route, now).map(({ address }) => address);
  const first = (now = 0) => backends.inOrder(route, now)[0] as Backend;
  return { backends, order, first };
}

test("the backend with the fewest connections is first, and of equals the one that was chosen longest ago", () => {
  const { backends, first, order } = start("a:1", "b:1", "c:1");
  const chosen = Array.from({ length: 6 }, () => {
    const backend = first();
    backends.enter(backend);
    return backend;
  });
  assert.deepEqual(
    chosen.map(({ address }) => address),
    ["a:1", "b:1", "c:1", "a:1", "b:1", "c:1"],
  );
  backends.leave(chosen[1] as Backend);
  assert.deepEqual(order()[0], "b:1");
});

test("one after the other, short connections go round", () => {
  const { backends, first } = start("a:1", "b:1");
  const seen = Array.from({ length: 4 }, () => {
    const backend = first();
    backends.enter(backend);
    backends.leave(backend);
    return backend.address;
  });
  assert.deepEqual(seen, ["a:1", "b:1", "a:1", "b:1"]);
});

test("a backend that was not reached is last until its time is over, or until it was reached", () => {
  const { first, order } = start("a:1", "b:1", "c:1");
  const a = first();
  a.avoid(5_000);
  assert.deepEqual(order(4_999), ["b:1", "c:1", "a:1"]);
  assert.deepEqual(order(5_000), ["a:1", "b:1", "c:1"]);
  a.avoid(9_000);
  a.reached();
  assert.deepEqual(order(8_000), ["a:1", "b:1", "c:1"]);
});

test("a backend is untried until a dial has reached it, and again when it is no longer avoided", () => {
  const { backends, first } = start("a:1");
  const a = first();
  backends.enter(a);
  assert.equal(a.state(0), "untried");
  a.reached();
  assert.equal(a.state(0), "healthy");
  a.avoid(5_000);
  assert.deepEqual([a.state(4_999), a.state(5_000)], ["avoided", "untried"]);
});

test("a change of the routes keeps what is known of backends that stay, and counts those that go no more", () => {
  const { backends, first } = start("a:1", "b:1");
  const a = first();
  backends.enter(a);
  a.avoid(5_000);
  backends.use(new RouteTable([routeTo("a:1", "c:1")]));
  assert.deepEqual(
    [...backends].map(({ address, connections }) => [address, connections]),
    [
      ["a:1", 1],
      ["c:1", 0],
    ],
  );
  assert.equal([...backends][0], a);
  assert.equal(a.state(4_999), "avoided");
});
