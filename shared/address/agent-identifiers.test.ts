import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type AgentIdentifiers, canonicalHost, canonicalIdentifiers, parseIdentifiers } from "./agent-identifiers.ts";

test("Konnectivity's identifiers are read into canonical forms, each once", () => {
  const cases: [query: string, AgentIdentifiers][] = [
    ["", {}],
    ["ipv4=172.30.1.5", { ipv4: ["172.30.1.5"] }],
    ["ipv4=1.2.3.4&ipv4=5.6.7.8&ipv4=1.2.3.4", { ipv4: ["1.2.3.4", "5.6.7.8"] }],
    ["ipv6=FD00:0:0::1&ipv6=fd00::1", { ipv6: ["fd00::1"] }],
    ["ipv6=%3A%3Affff%3A10.0.0.1", { ipv4: ["10.0.0.1"] }],
    // Installers write a node's address under any of the three.
    ["ipv4=fd00::1&host=10.0.0.21", { ipv4: ["10.0.0.21"], ipv6: ["fd00::1"] }],
    ["host=Node-1.Example.COM.&host=b%C3%BCcher.example", { host: ["node-1.example.com", "xn--bcher-kva.example"] }],
    ["cidr=127.0.0.1/16&cidr=10.1.2.3&cidr=100::1/64", { cidr: ["127.0.0.0/16", "10.1.2.3/32", "100::/64"] }],
    ["cidr=::ffff:10.1.2.3/104", { cidr: ["10.0.0.0/8"] }],
    ["default-route=true", { defaultRoute: true }],
    ["default-route=1&host=a", { host: ["a"], defaultRoute: true }],
    ["default-route=False", {}],
    // Of several, Konnectivity reads the first.
    ["default-route=true&default-route=false", { defaultRoute: true }],
  ];
  for (const [query, identifiers] of cases) assert.deepEqual(parseIdentifiers([query]), identifiers, query);
  assert.deepEqual(parseIdentifiers(["host=a", "host=b&default-route=true"]), { host: ["a", "b"], defaultRoute: true });
});

test("what can be no identifier is refused with a sentence", () => {
  for (const [query, sentence] of [
    ["ipv4=", /^ipv4="" is not an IP address/],
    ["ipv4=$(POD_IP)", /^ipv4="\$\(POD_IP\)" is not an IP address \(write a name as host=\)$/],
    ["ipv6=fe80::1%25eth0", /^ipv6="fe80::1%eth0" is not an IP address/],
    ["host=", /^host="" is empty$/],
    ["host=a b", /^host="a b" is no host name/],
    ["ipv4=10.0.0.1,host=x", /^"ipv4=10\.0\.0\.1,host=x" has a comma, and & separates identifiers \(ipv4=/],
    ["host=a,b", /^"host=a,b" has a comma, and & separates/],
    ["default-route=true,host=a", /^"default-route=true,host=a" has a comma, and & separates/],
    ["host=10.1", /^host="10.1" is an IP address in disguise/],
    ["cidr=10.0.0.0/33", /^cidr "10.0.0.0\/33": a prefix length here is at most 32/],
    ["cidr=example", /^cidr "example": "example" is not an IP address/],
    ["default-route=yes", /^default-route="yes" is neither true nor false$/],
    ["uid=a", /^"uid" is no identifier; known are ipv4, ipv6, host, cidr, default-route/],
    ["172.30.1.5", /^"172.30.1.5" is no identifier/],
    [Array.from({ length: 65 }, (_, i) => `host=h${i}`).join("&"), /these are 65 identifiers, and at most 64/],
    [
      Array.from({ length: 30 }, (_, i) => `host=${"a".repeat(60)}.${"b".repeat(60)}.${"c".repeat(60)}.h${i}`).join(
        "&",
      ),
      /have \d+ bytes, and at most 4096/,
    ],
  ] as const) {
    assert.throws(() => parseIdentifiers([query]), { message: sentence });
  }
});

test("a target's host is compared in the form of identifiers, however it is spelt", () => {
  for (const [host, canonical] of [
    ["172.30.1.5", "172.30.1.5"],
    ["::ffff:172.30.1.5", "172.30.1.5"],
    ["::FFFF:ac1e:105", "172.30.1.5"],
    ["FD00:0::1", "fd00::1"],
    ["Web.Default.SVC.", "web.default.svc"],
  ] as const) {
    assert.equal(canonicalHost(host), canonical);
  }
});

test("canonical identifiers stay as they are, and compare equal to the hosts that they are for", () => {
  const list = (one: fc.Arbitrary<string>) => fc.array(one, { maxLength: 5 });
  const cidr = fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })).map(([address, bits]) => `${address}/${bits}`);
  fc.assert(
    fc.property(
      list(fc.ipV4()),
      list(fc.ipV6()),
      list(fc.domain()),
      list(cidr),
      fc.boolean(),
      (ipv4, ipv6, host, networks, defaultRoute) => {
        const once = canonicalIdentifiers({ ipv4, ipv6, host, cidr: networks, defaultRoute });
        assert.deepEqual(canonicalIdentifiers(once), once);
        const hosts = new Set([...(once.ipv4 ?? []), ...(once.ipv6 ?? []), ...(once.host ?? [])]);
        for (const each of [...ipv4, ...ipv6, ...host]) assert.ok(hosts.has(canonicalHost(each)), each);
      },
    ),
  );
});
