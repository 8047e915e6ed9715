import assert from "node:assert/strict";
import { test } from "node:test";
import { parseRoutes, type Route, RouteTable } from "./routes.ts";

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
