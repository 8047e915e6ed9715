import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTarget } from "../../shared/address/target.ts";
import { SourceCidrs, TargetRules } from "./access-rules.ts";

/** allow, deny, target, refused? */
const RULES: [string, string[], string[], string, RegExp | undefined][] = [
  ["without rules all is allowed", [], [], "10.0.0.1:1", undefined],
  [
    "an allow rule excludes the rest",
    ["10.0.0.0/8"],
    [],
    "11.0.0.1:1",
    /no allow rule of the cluster covers 11\.0\.0\.1:1/,
  ],
  ["an allow rule covers its network", ["10.0.0.0/8"], [], "10.255.0.1:1", undefined],
  ["a port limits a rule", ["10.0.0.0/8:443"], [], "10.0.0.1:444", /no allow rule/],
  ["a range includes both ends", ["10.0.0.0/8:443-500"], [], "10.0.0.1:500", undefined],
  ["deny wins", ["10.0.0.0/8"], ["10.0.0.1"], "10.0.0.1:1", /the rule "deny 10\.0\.0\.1" of the cluster covers 10/],
  ["deny alone leaves the rest", [], ["10.0.0.0/8:22"], "10.0.0.1:443", undefined],
  ["a mapped address is IPv4", [], ["10.0.0.0/8"], "[::ffff:10.0.0.1]:1", /deny 10/],
  ["a mapped address in hexadecimal, too", [], ["10.0.0.0/8"], "[::ffff:a00:1]:1", /deny 10/],
  ["a mapped address is allowed as IPv4", ["10.0.0.0/8"], [], "[::ffff:10.0.0.1]:1", undefined],
  ["deny sees through 6to4", [], ["10.0.0.0/8"], "[2002:a00:1::]:1", /deny 10/],
  ["deny sees through NAT64", [], ["10.0.0.0/8"], "[64:ff9b::a00:1]:1", /deny 10/],
  ["the unspecified address is loopback", [], ["127.0.0.0/8"], "0.0.0.0:1", /deny 127/],
  ["IPv6 networks", ["fd00::/8"], [], "[fd12::1]:1", undefined],
  ["networks say nothing of names", ["10.0.0.0/8"], [], "web.svc:1", /no allow rule/],
  ["denied networks say nothing of names", [], ["0.0.0.0/0"], "web.svc:1", undefined],
  ["a host pattern, any case, final dot", ["*.SVC"], [], "Web.Default.Svc.:1", undefined],
  ["a host pattern is no suffix", ["*.svc"], [], "web.svc.evil.example:1", /no allow rule/],
  ["a partial pattern matches no address", ["*1*"], [], "10.0.0.1:1", /no allow rule/],
  ["a star alone matches an address", ["*:443"], [], "10.0.0.1:443", undefined],
  ["a denied host in any spelling", [], ["db.*"], "DB.internal.:5432", /deny db\.\*/],
  ["a denied Service needs a name of at most three labels", [], ["*.svc"], "a.b.example.com:443", undefined],
  ["a denied Service is no other", [], ["web.default.svc"], "web.other.svc:443", undefined],
  ["an allowed Service is what it is called", ["web.default.svc"], [], "web.default:443", /no allow rule/],
];

for (const [name, allow, deny, target, reason] of RULES) {
  test(name, () => {
    const given = new TargetRules(allow, deny).objection(parseTarget(target));
    if (reason === undefined) assert.equal(given, undefined);
    else assert.match(given ?? "", reason);
  });
}

/** The same Service, as callers may ask for it and as rules may name it. */
const SPELLINGS = [
  "web.default",
  "web.default.svc",
  "web.default.cluster.local",
  "web.default.svc.cluster.local",
  "WEB.default.svc.cluster.local.",
];
const PATTERNS = [
  "web.default",
  "web.default.svc",
  "web.default.svc.cluster.local",
  "*.default.svc",
  "web.*.svc.cluster.local",
];

for (const asked of [...SPELLINGS, "web.default.svc.corp.example"]) {
  test(`a denied Service is denied as ${asked}`, () => {
    for (const pattern of PATTERNS) {
      assert.match(
        new TargetRules([], [pattern]).objection(parseTarget(`${asked}:443`)) ?? "",
        /^the rule "deny /,
        pattern,
      );
    }
  });
}

test("names pass by where addresses are denied and nothing is allowed", () => {
  const passBy = (allow: string[], deny: string[]) => new TargetRules(allow, deny).namesBypassDeny;
  assert.equal(passBy([], ["10.0.0.0/8"]), true);
  assert.equal(passBy([], ["*.svc"]), false);
  assert.equal(passBy(["*.svc"], ["10.0.0.0/8"]), false);
  assert.equal(passBy([], []), false);
});

const sources = new SourceCidrs(["10.0.0.0/8", "192.0.2.7", "fd00::/8", "::ffff:198.51.100.0/120", "fe80::/10"]);

for (const [address, included] of [
  ["10.255.0.1", true],
  ["11.0.0.1", false],
  ["::ffff:10.0.0.1", true],
  ["::ffff:11.0.0.1", false],
  ["192.0.2.7", true],
  ["192.0.2.8", false],
  ["fd12::1", true],
  ["fe00::1", false],
  ["198.51.100.9", true],
  ["198.51.101.9", false],
  ["fe80::1%eth0", true],
  ["", false],
  ["blue.example", false],
] as const) {
  test(`${JSON.stringify(address)} is ${included ? "in" : "not in"} the list`, () => {
    assert.equal(sources.includes(address), included);
  });
}

for (const [text, sentence] of [
  ["10.0.0.0/33", /at most 32/],
  ["10.0.0", /not an IP address/],
  ["blue.example", /not an IP address/],
  ["10.0.0.0/", /not a prefix length/],
  ["fe80::1%eth0", /zone/],
] as const) {
  test(`the network "${text}" is refused with its cure`, () => {
    assert.throws(() => new SourceCidrs([text]), sentence);
    assert.throws(() => new SourceCidrs([text]), /write for example 10\.0\.0\.0\/8/);
  });
}
