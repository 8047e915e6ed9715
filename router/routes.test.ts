import assert from "node:assert/strict";
import { test } from "node:test";
import { type Route, RouteTable } from "./routes.ts";

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
