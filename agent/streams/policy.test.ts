import assert from "node:assert/strict";
import { isIPv4 } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { TargetPolicy } from "./policy.ts";

const own = [
  { address: "0.0.0.0", port: 8093 },
  { address: "127.0.0.1", port: 8094 },
  { address: "::", port: 8095 },
];

function decide(allow: string[], deny: string[], host: string, port: number, address = host): string | undefined {
  const policy = new TargetPolicy({
    allow,
    deny,
    allowLoopback: false,
    ownListeners: () => own,
    machineAddresses: () => ["127.0.0.1", "::1", "10.9.9.9", "fd00::9"],
  });
  return policy.refusal({ host, address, port });
}

const DEFAULTS: [string, number, RegExp | undefined][] = [
  ["10.0.0.1", 10250, undefined],
  ["8.8.8.8", 53, undefined],
  ["fd00::1", 443, undefined],
  ["169.254.0.1", 80, /link-local/],
  ["169.254.169.254", 80, /link-local addresses are refused unless --allow-target/],
  ["169.255.0.1", 80, undefined],
  ["febf:ffff::1", 80, /link-local/],
  ["fec0::1", 80, undefined],
  ["fe80::1%eth0", 80, /link-local/],
  ["fd00:0ec2:0:0::0254", 80, /cloud-metadata/],
  ["fd00:ec2::253", 80, /cloud-metadata/],
  ["fd00:ec3::254", 80, undefined],
  ["0:0:0:0:0:ffff:a9fe:a9fe", 80, /link-local/],
  ["127.0.0.1", 8093, /listener of the agent itself/],
  ["127.8.8.8", 8093, /listener of the agent itself/],
  ["0.0.0.0", 8093, /listener of the agent itself/],
  ["::", 8093, /listener of the agent itself/],
  ["::1", 8093, /listener of the agent itself/],
  ["::ffff:127.0.0.1", 8093, /listener of the agent itself/],
  ["::ffff:0.0.0.0", 8093, /listener of the agent itself/],
  ["10.9.9.9", 8093, /listener of the agent itself/],
  ["::ffff:10.9.9.9", 8093, /listener of the agent itself/],
  ["fd00::9", 8095, /listener of the agent itself/],
  ["10.9.9.8", 8093, undefined],
  ["127.0.0.1", 8094, /listener of the agent itself/],
  ["0.0.0.0", 8094, /listener of the agent itself/],
  ["10.9.9.9", 8094, undefined],
  ["not-an-address", 80, /not an IP address/],
];

for (const [address, port, reason] of DEFAULTS) {
  test(`without rules ${address} port ${port} is ${reason === undefined ? "allowed" : "refused"}`, () => {
    const given = decide([], [], address, port);
    if (reason === undefined) assert.equal(given, undefined);
    else assert.match(given ?? "", reason);
  });
}

/** allow, deny, host, port, address, refused? */
const RULES: [string, string[], string[], string, number, string, RegExp | undefined][] = [
  ["an allow rule excludes the rest", ["10.0.0.0/8"], [], "11.0.0.1", 1, "11.0.0.1", /no --allow-target/],
  ["an allow rule covers its network", ["10.0.0.0/8"], [], "10.255.0.1", 1, "10.255.0.1", undefined],
  ["host bits in a network do not matter", ["10.1.2.3/8"], [], "10.255.0.1", 1, "10.255.0.1", undefined],
  ["one address is allowed alone", ["10.0.0.1"], [], "10.0.0.2", 1, "10.0.0.2", /no --allow-target/],
  ["a port limits a rule", ["10.0.0.0/8:443"], [], "10.0.0.1", 444, "10.0.0.1", /no --allow-target/],
  ["a range includes both ends", ["10.0.0.0/8:443-500"], [], "10.0.0.1", 500, "10.0.0.1", undefined],
  ["a range ends", ["10.0.0.0/8:443-500"], [], "10.0.0.1", 501, "10.0.0.1", /no --allow-target/],
  ["deny wins over allow", ["10.0.0.0/8"], ["10.0.0.1"], "10.0.0.1", 1, "10.0.0.1", /--deny-target 10.0.0.1 covers it/],
  ["deny alone leaves the rest", [], ["10.0.0.0/8:22"], "10.0.0.1", 443, "10.0.0.1", undefined],
  ["deny sees a mapped address", [], ["10.0.0.0/8"], "::ffff:10.0.0.1", 1, "::ffff:10.0.0.1", /--deny-target/],
  ["deny sees through NAT64", [], ["10.0.0.0/8"], "64:ff9b::a00:1", 1, "64:ff9b::a00:1", /IPv4 address in it/],
  ["a mapped rule is an IPv4 rule", ["[::ffff:10.0.0.0/104]:1"], [], "10.0.0.1", 1, "10.0.0.1", undefined],
  ["deny sees 0.0.0.0 as loopback", [], ["127.0.0.0/8"], "0.0.0.0", 1, "0.0.0.0", /--deny-target/],
  ["deny judges the resolved address", [], ["10.0.0.0/8"], "web.example", 1, "10.0.0.1", /--deny-target/],
  ["allow judges the resolved address", ["10.0.0.0/8"], [], "web.example", 1, "10.0.0.1", undefined],
  ["IPv6 networks", ["fd00::/8"], [], "fd12::1", 1, "fd12::1", undefined],
  ["IPv6 networks end", ["fd00::/9"], [], "fd80::1", 1, "fd80::1", /no --allow-target/],
  ["IPv6 with a port", ["[fd00::/8]:443"], [], "fd12::1", 443, "fd12::1", undefined],
  ["IPv6, prefix outside", ["[fd00::]/8:443"], [], "fd12::1", 80, "fd12::1", /no --allow-target/],
  ["a host pattern", ["*.svc"], [], "web.default.svc", 1, "10.0.0.1", undefined],
  ["a host pattern, any case, final dot", ["*.SVC"], [], "Web.Default.Svc.", 1, "10.0.0.1", undefined],
  ["a host pattern needs its dot", ["*.svc"], [], "svc", 1, "10.0.0.1", /no --allow-target/],
  ["a host pattern is no suffix", ["*.svc"], [], "web.svc.evil.example", 1, "10.0.0.1", /no --allow-target/],
  ["an exact host", ["web.example:443"], [], "web.example", 443, "10.0.0.1", undefined],
  ["an exact host is exact", ["web.example"], [], "xweb.example", 443, "10.0.0.1", /no --allow-target/],
  ["a star in the middle", ["web-*.example"], [], "web-12.example", 443, "10.0.0.1", undefined],
  ["a denied host", [], ["db.*"], "db.internal", 5432, "10.0.0.1", /--deny-target db\.\* covers/],
  ["a star matches an address, too", ["*:443"], [], "10.0.0.1", 443, "10.0.0.1", undefined],
  ["a star with a port has one", ["*:443"], [], "10.0.0.1", 80, "10.0.0.1", /no --allow-target/],
  ["a partial pattern matches no address", ["*1*"], [], "10.0.0.1", 80, "10.0.0.1", /no --allow-target/],
  ["a host rule does not lift link-local", ["*"], [], "meta.example", 80, "169.254.169.254", /link-local/],
  ["a wide rule does not lift it", ["0.0.0.0/0"], [], "169.254.169.254", 80, "169.254.169.254", /link-local/],
  ["its own network lifts it", ["169.254.0.0/16"], [], "169.254.169.254", 80, "169.254.169.254", undefined],
  ["its address lifts it", ["169.254.169.254:80"], [], "169.254.169.254", 80, "169.254.169.254", undefined],
  ["on that port only", ["169.254.169.254:80"], [], "169.254.169.254", 81, "169.254.169.254", /no --allow-target/],
  ["IPv6 link-local is lifted", ["fe80::/10"], [], "fe80::1", 80, "fe80::1", undefined],
  ["a metadata address is lifted", ["100.100.100.200"], [], "100.100.100.200", 80, "100.100.100.200", undefined],
  ["not by its network", ["100.64.0.0/10"], [], "100.100.100.200", 80, "100.100.100.200", /cloud-metadata/],
  ["deny wins there, too", ["169.254.0.0/16"], ["169.254.169.254"], "m", 80, "169.254.169.254", /--deny-target/],
  [
    "an own listener, even by address and port",
    ["127.0.0.1:8093"],
    [],
    "127.0.0.1",
    8093,
    "127.0.0.1",
    /listener of the agent/,
  ],
  ["nor by the machine's own address", ["10.9.9.9:8093"], [], "10.9.9.9", 8093, "10.9.9.9", /listener of the agent/],
];

for (const [name, allow, deny, host, port, address, reason] of RULES) {
  test(name, () => {
    const given = decide(allow, deny, host, port, address);
    if (reason === undefined) assert.equal(given, undefined);
    else assert.match(given ?? "", reason);
  });
}

for (const [text, sentence] of [
  ["", /it is empty/],
  ["10.0.0.0/33", /prefix length here is at most 32/],
  ["fd00::/129", /at most 128/],
  ["10.0.0.0/x", /not a prefix length/],
  ["10.0.0.0/", /"\/" is not a prefix length/],
  ["10.0.0.0/8:0", /port from 1 to 65535/],
  ["10.0.0.0/8:70000", /port from 1 to 65535/],
  ["10.0.0.0/8:https", /port from 1 to 65535/],
  ["10.0.0.0/8:", /port from 1 to 65535/],
  ["10.0.0.0/8:500-443", /upside down/],
  ["[10.0.0.1]:80", /for IPv6 addresses/],
  ["[fd00::/8:80", /brackets go round/],
  ["fd00::zz", /not an IPv6 address/],
  ["fe80::1%eth0", /zone/],
  ["web.example/24", /no prefix length/],
  ["10.0.*", /looks like an IPv4 address .* CIDR/],
  ["10.0.0", /looks like an IPv4 address/],
  ["10.0.0.256", /looks like an IPv4 address/],
  [":443", /no host; "\*" stands for any/],
  [".svc", /write "\*\.svc", not "\.svc"/],
  ["a..b", /empty label/],
  ["http://x", /neither|port|prefix/],
  ["we b", /neither an address nor a host name/],
] as const) {
  test(`the rule "${text}" is refused with its cure`, () => {
    assert.throws(() => new TargetPolicy({ allow: [text], deny: [], allowLoopback: false }), sentence);
    assert.throws(() => new TargetPolicy({ allow: [], deny: [text], allowLoopback: false }), /--deny-target ".*": /);
  });
}

/** All 128 bits, IPv4 as its mapped form: the oracle knows nothing of the rules' machinery. */
function bits(address: string): bigint {
  if (isIPv4(address))
    return address.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0xffff00000000n >> 32n);
  const dotted = /[0-9.]+$/.exec(address)?.[0] ?? "";
  if (isIPv4(dotted)) {
    const low = (bits(dotted) & 0xffffffffn).toString(16).padStart(8, "0");
    return bits(`${address.slice(0, -dotted.length)}${low.slice(0, 4)}:${low.slice(4)}`);
  }
  const [head = "", tail] = address.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const groups = [...left, ...Array<string>(8 - left.length - right.length).fill("0"), ...right];
  return groups.reduce((sum, group) => sum * 65536n + BigInt(`0x${group}`), 0n);
}

test("a network covers exactly the addresses that share its prefix", () => {
  const v4 = fc.tuple(fc.ipV4(), fc.ipV4(), fc.integer({ min: 0, max: 32 }), fc.integer({ min: 0, max: 32 }));
  const v6 = fc.tuple(fc.ipV6(), fc.ipV6(), fc.integer({ min: 0, max: 128 }), fc.integer({ min: 0, max: 128 }));
  fc.assert(
    fc.property(fc.oneof(v4, v6), ([network, other, prefix, shared]) => {
      const size = isIPv4(network) ? 32n : 128n;
      // An address that agrees with the network in `shared` bits at least: random ones would never be near.
      const low = (1n << (size - BigInt(shared))) - 1n;
      const value = (bits(network) & ~low) | (bits(other) & low);
      const address = isIPv4(network) ? v4Text(value) : v6Text(value);
      const covered = (value ^ bits(network)) >> (size - BigInt(prefix)) === 0n;
      const rule = isIPv4(network) ? `${network}/${prefix}` : `[${network}/${prefix}]:1-65535`;
      const reason = decide([], [rule], address, 1);
      // The unspecified address, mapped addresses and those of NAT64 are dialled as other addresses.
      fc.pre(value !== 0n && !address.startsWith("::ffff:") && !/^::ffff:/.test(network));
      fc.pre(!address.startsWith("64:ff9b:"));
      assert.equal(reason?.startsWith("--deny-target") === true, covered, `${rule} ${address}: ${reason}`);
    }),
    { numRuns: process.env["CI"] === "true" ? 3_000 : 300 },
  );
});

function v4Text(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join(".");
}

function v6Text(value: bigint): string {
  return Array.from({ length: 8 }, (_, at) => ((value >> BigInt(112 - 16 * at)) & 0xffffn).toString(16)).join(":");
}

test("any text is either a rule or an error with a sentence", () => {
  const pieces = fc.constantFrom(
    "10",
    ".",
    "0",
    ":",
    "/",
    "8",
    "[",
    "]",
    "*",
    "-",
    "svc",
    "fd00",
    "::",
    "443",
    "%",
    " ",
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 10 }), (parts) => {
      try {
        new TargetPolicy({ allow: [parts.join("")], deny: [], allowLoopback: false }).refusal({
          host: "a.svc",
          address: "10.0.0.1",
          port: 443,
        });
      } catch (error) {
        assert.match(String(error), /^Error: --allow-target ".*": .* \(write for example/);
      }
    }),
    { numRuns: process.env["CI"] === "true" ? 3_000 : 300 },
  );
});

/** Spellings of targets that are refused by default, and the refused address of each. */
const SPELLINGS: readonly [string, RegExp][] = [
  ["127.0.0.1", /loopback/],
  ["127.1.2.3", /loopback/],
  ["127.255.255.255", /loopback/],
  ["0.0.0.0", /loopback/],
  ["::", /loopback/],
  ["0:0:0:0:0:0:0:0", /loopback/],
  ["::1", /loopback/],
  ["0:0:0:0:0:0:0:1", /loopback/],
  ["::1%lo", /loopback/],
  ["::ffff:127.0.0.1", /loopback/],
  ["::ffff:7f00:1", /loopback/],
  ["0:0:0:0:0:ffff:7f00:0001", /loopback/],
  ["::ffff:0.0.0.0", /loopback/],
  ["::127.0.0.1", /loopback/],
  ["::7f00:1", /loopback/],
  ["::ffff:0:127.0.0.1", /loopback/],
  ["64:ff9b::127.0.0.1", /loopback/],
  ["64:ff9b::7f00:1", /loopback/],
  ["64:ff9b:1::127.0.0.1", /loopback/],
  ["64:ff9b:1:7f00:0:100::", /loopback/],
  ["2002:7f00:1::", /loopback/],
  ["2002:7f00:1::1", /loopback/],
  ["2001:0:808:808:0:0:80ff:fffe", /loopback/],
  ["2001:0:7f00:1::", /loopback/],
  ["fd00::5efe:7f00:1", /loopback/],
  ["fd00::200:5efe:127.0.0.1", /loopback/],
  ["169.254.169.254", /link-local/],
  ["169.254.0.0", /link-local/],
  ["169.254.255.255", /link-local/],
  ["fe80::1", /link-local/],
  ["fe80::a9fe:a9fe%eth0", /link-local/],
  ["febf::1", /link-local/],
  ["FE80::1", /link-local/],
  ["::ffff:169.254.169.254", /link-local/],
  ["::ffff:a9fe:a9fe", /link-local/],
  ["::169.254.169.254", /link-local/],
  ["::ffff:0:a9fe:a9fe", /link-local/],
  ["64:ff9b::169.254.169.254", /link-local/],
  ["64:ff9b::a9fe:a9fe", /link-local/],
  ["0064:ff9b:0:0:0:0:a9fe:a9fe", /link-local/],
  ["64:ff9b:1::169.254.169.254", /link-local/],
  ["64:ff9b:1:a9fe:a9:fe00::", /link-local/],
  ["64:ff9b:1:a9:fe:a9fe::", /link-local/],
  ["64:ff9b:1:0:a9:fea9:fe00::", /link-local/],
  ["64:ff9b:1:2:3:4:a9fe:a9fe", /link-local/],
  ["2002:a9fe:a9fe::", /link-local/],
  ["2002:a9fe:a9fe:1:2:3:4:5", /link-local/],
  ["2001:0:0:0:0:0:5601:5601", /link-local/],
  ["2001::a9fe:a9fe:0:0:0:0", /link-local/],
  ["2a00::5efe:a9fe:a9fe", /link-local/],
  ["100.100.100.200", /cloud-metadata/],
  ["::ffff:100.100.100.200", /cloud-metadata/],
  ["64:ff9b::100.100.100.200", /cloud-metadata/],
  ["2002:6464:64c8::", /cloud-metadata/],
  ["192.0.0.192", /cloud-metadata/],
  ["168.63.129.16", /cloud-metadata/],
  ["64:ff9b:1::168.63.129.16", /cloud-metadata/],
  ["fd00:ec2::254", /cloud-metadata/],
  ["fd00:ec2::23", /cloud-metadata/],
  ["fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", /cloud-metadata/],
  ["fd20:ce::254", /cloud-metadata/],
  ["fd00:42::42", /cloud-metadata/],
];

for (const [address, kind] of SPELLINGS) {
  test(`${address} is refused, whatever a wide rule allows`, () => {
    assert.match(decide([], [], address, 80) ?? "", kind);
    assert.match(decide(["0.0.0.0/0", "::/0", "*"], [], "name.example", 80, address) ?? "", kind);
  });
}

for (const address of ["2001:db8::1", "2001:4860::8888", "2002:808:808::1", "64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8"]) {
  test(`${address} leads nowhere that is refused`, () => assert.equal(decide([], [], address, 80), undefined));
}

/** 10.1.2.3 in each form. */
const EMBEDDED = [
  "::ffff:10.1.2.3",
  "::10.1.2.3",
  "::ffff:0:10.1.2.3",
  "64:ff9b::10.1.2.3",
  "64:ff9b:1::10.1.2.3",
  "64:ff9b:1:a01:2:300::",
  "64:ff9b:1:a:1:203::",
  "64:ff9b:1:0:a:102:300:0",
  "2002:a01:203::1",
  "2001:0:808:808:0:0:f5fe:fdfc",
  "2001:0:a01:203::",
  "fd12::5efe:a01:203",
  "fd12::200:5efe:10.1.2.3",
];

for (const address of EMBEDDED) {
  test(`--deny-target 10.0.0.0/8 covers ${address}`, () => {
    assert.match(decide([], ["10.0.0.0/8"], address, 80) ?? "", /^--deny-target 10\.0\.0\.0\/8 covers/);
  });
}

test("--allow-loopback allows loopback, and nothing else that is refused", () => {
  const policy = new TargetPolicy({ allow: [], deny: [], allowLoopback: true, ownListeners: () => own });
  const allowed = (address: string, port = 80) => policy.refusal({ host: address, address, port }) === undefined;
  assert.deepEqual(
    ["127.0.0.1", "::1", "0.0.0.0", "169.254.0.1", "fd00:ec2::254"].map((each) => allowed(each)),
    [true, true, true, false, false],
  );
  assert.equal(allowed("127.0.0.1", 8093), false, "its own listener");
});

for (const [allow, address, refused] of [
  ["127.0.0.1:80", "127.0.0.1", false],
  ["127.0.0.0/8", "127.1.2.3", false],
  ["127.0.0.0/8", "0.0.0.0", false],
  ["::1", "::1", false],
  ["::1", "127.0.0.1", true],
  ["0.0.0.0/0", "127.0.0.1", true],
  ["*", "127.0.0.1", true],
  ["localhost", "127.0.0.1", true],
] as const) {
  test(`--allow-target ${allow} ${refused ? "does not name" : "names"} ${address}`, () => {
    assert.equal(decide([allow], [], "localhost", 80, address) !== undefined, refused);
  });
}
