import assert from "node:assert/strict";
import { test } from "node:test";
import { type Route, RouteTable } from "./routes.ts";

function route(...sni: [string, ...string[]]): Route {
  return { name: sni[0], sni, to: [{ host: "10.0.0.1", port: 8091 }], sendProxy: "off" };
}

test("an exact name wins over a wildcard, the longest wildcard over others, and nothing is a default", () => {
  const table = new RouteTable([
    route("*.example.com"),
    route("*.eu.example.com", "*.us.example.com"),
    route("blue.eu.example.com", "plain.example"),
    route("__proto__"),
  ]);
  for (const [name, found] of [
    ["blue.eu.example.com", "blue.eu.example.com"],
    ["plain.example", "blue.eu.example.com"],
    ["green.eu.example.com", "*.eu.example.com"],
    ["a.b.us.example.com", "*.eu.example.com"],
    ["eu.example.com", "*.example.com"],
    ["a.blue.eu.example.com", "*.eu.example.com"],
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
