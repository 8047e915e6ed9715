import assert from "node:assert/strict";
import { test } from "node:test";
import { type PacFunction, type PacValue, pacFunctions } from "./pac-functions.ts";

const NAMES: Readonly<Record<string, readonly string[]>> = {
  "both.test": ["2001:db8::1", "10.1.2.3", "10.1.2.4"],
  "six.test": ["2001:db8::6"],
};
/** A Friday, 2026-11-27 14:05:30 in local time. */
const NOW = new Date(2026, 10, 27, 14, 5, 30);

function call(name: string, values: readonly PacValue[], { now = NOW, own = ["2001:db8::9", "10.9.9.9"] } = {}) {
  const functions = pacFunctions({
    addressesOf: (host) => NAMES[host] ?? [],
    ownAddresses: () => own,
    now: () => now,
  });
  return (functions[name] as PacFunction)(...values);
}

type Row = readonly [name: string, values: readonly PacValue[], answer: PacValue];

const ROWS: readonly Row[] = [
  ["isPlainHostName", ["www"], true],
  ["isPlainHostName", ["www.corp"], false],
  ["isPlainHostName", ["fd00::1"], false],
  ["dnsDomainIs", ["www.corp.com", ".corp.com"], true],
  ["dnsDomainIs", ["corp.com", ".corp.com"], false],
  ["dnsDomainIs", ["evilcorp.com", "corp.com"], true],
  ["dnsDomainIs", ["a", "corp.com"], false],
  ["localHostOrDomainIs", ["www.corp.com", "www.corp.com"], true],
  ["localHostOrDomainIs", ["www", "www.corp.com"], true],
  ["localHostOrDomainIs", ["ww", "www.corp.com"], false],
  ["localHostOrDomainIs", ["www.other.com", "www.corp.com"], false],
  ["dnsDomainLevels", ["www"], 0],
  ["dnsDomainLevels", ["www.corp.com"], 2],
  ["shExpMatch", ["http://www.corp.com/a", "*corp.com/*"], true],
  ["shExpMatch", ["wwwXcorp", "www.corp"], false],
  ["shExpMatch", ["a1.corp", "a?.corp"], true],
  ["shExpMatch", ["a.corp", "a?.corp"], false],
  ["shExpMatch", ["b.corp", "(a|b).corp"], true],
  ["shExpMatch", ["a.corp", "corp"], false],
  ["dnsResolve", ["both.test"], "10.1.2.3"],
  ["dnsResolve", ["six.test"], null],
  ["dnsResolve", ["nobody.test"], null],
  ["dnsResolve", ["10.0.0.1"], "10.0.0.1"],
  ["dnsResolve", [null], null],
  ["isResolvable", ["both.test"], true],
  ["isResolvable", ["six.test"], false],
  ["dnsResolveEx", ["both.test"], "2001:db8::1;10.1.2.3;10.1.2.4"],
  ["dnsResolveEx", ["nobody.test"], ""],
  ["isResolvableEx", ["six.test"], true],
  ["isResolvableEx", ["nobody.test"], false],
  ["myIpAddress", [], "10.9.9.9"],
  ["myIpAddressEx", [], "2001:db8::9;10.9.9.9"],
  ["getClientVersion", [], "1.0"],
  ["alert", ["x"], undefined],
  ["convert_addr", ["255.255.255.0"], -256],
  ["convert_addr", ["1.2.3.4"], 16909060],
  ["convert_addr", ["www"], 0],
  ["isInNet", ["10.1.9.9", "10.1.0.0", "255.255.0.0"], true],
  ["isInNet", ["10.2.9.9", "10.1.0.0", "255.255.0.0"], false],
  ["isInNet", ["both.test", "10.1.2.3", "255.255.255.255"], true],
  ["isInNet", ["nobody.test", "0.0.0.0", "0.0.0.0"], false],
  ["isInNet", [null, "0.0.0.0", "0.0.0.0"], false],
  ["isInNet", ["200.1.1.1", "0.0.0.0", "128.0.0.0"], false],
  ["isInNet", ["200.1.1.1", "128.0.0.0", "128.0.0.0"], true],
  ["isInNet", ["10.1.9.9", "10.1", "255.255.0.0"], false],
  ["isInNet", ["10.1.9.9", "10.1.0.0", "255.255.0.256"], false],
  ["isInNet", ["10.1.9.9", "10.1.0.0"], false],
  ["isInNetEx", ["10.1.2.3", "10.1.0.0/16"], true],
  ["isInNetEx", ["10.2.2.3", "10.1.0.0/16"], false],
  ["isInNetEx", ["2001:db8::5", "2001:db8::/32"], true],
  ["isInNetEx", ["10.1.2.3", "2001:db8::/32"], false],
  ["isInNetEx", ["both.test", "10.0.0.0/8"], false],
  ["isInNetEx", ["10.1.2.3", "10.1.2.3"], false],
  ["isInNetEx", ["10.1.2.3", "10.0.0.0/33"], false],
  ["isInNetEx", ["10.1.2.3", "/"], false],
  [
    "sortIpAddressList",
    ["10.2.3.9; 2001:4898::28:400;::9;10.2.3.88;fd00::1"],
    "::9;2001:4898::28:400;fd00::1;10.2.3.9;10.2.3.88",
  ],
  ["sortIpAddressList", ["10.0.0.1"], "10.0.0.1"],
  ["sortIpAddressList", ["10.0.0.1;www"], false],
  ["sortIpAddressList", [""], false],
  ["sortIpAddressList", [undefined], false],
  ["weekdayRange", ["FRI"], true],
  ["weekdayRange", ["THU"], false],
  ["weekdayRange", ["MON", "FRI"], true],
  ["weekdayRange", ["SAT", "THU"], false],
  ["weekdayRange", ["THU", "MON"], true],
  ["weekdayRange", ["fri"], false],
  ["weekdayRange", [], false],
  ["dateRange", [27], true],
  ["dateRange", ["27"], true],
  ["dateRange", [26], false],
  ["dateRange", ["NOV"], true],
  ["dateRange", ["OCT"], false],
  ["dateRange", [2026], true],
  ["dateRange", [20, 28], true],
  ["dateRange", [28, 5], false],
  ["dateRange", [25, 5], true],
  ["dateRange", ["OCT", "DEC"], true],
  ["dateRange", ["DEC", "FEB"], false],
  ["dateRange", [2025, 2027], true],
  ["dateRange", [1, "JUN", 15, "AUG"], false],
  ["dateRange", [20, "NOV", 3, "JAN"], true],
  ["dateRange", ["OCT", 2025, "MAR", 2026], false],
  ["dateRange", ["OCT", 2025, "MAR", 2027], true],
  ["dateRange", [1, "JUN", 2026, 30, "NOV", 2026], true],
  ["dateRange", [1, "JUN", 2025, 26, "NOV", 2026], false],
  ["dateRange", [], false],
  ["dateRange", ["FOO"], false],
  ["dateRange", [1, "NOV"], false],
  ["dateRange", [1, "JUN", 3], false],
  ["timeRange", [14], true],
  ["timeRange", [13], false],
  ["timeRange", [9, 14], true],
  ["timeRange", [9, 13], false],
  ["timeRange", [22, 15], false],
  ["timeRange", [14, 0, 14, 5], true],
  ["timeRange", [14, 6, 15, 0], false],
  ["timeRange", [22, 0, 15, 0], true],
  ["timeRange", [14, 5, 30, 14, 5, 31], true],
  ["timeRange", [14, 5, 31, 14, 6, 0], false],
  ["timeRange", [], false],
  ["timeRange", [1, 2, 3], false],
  ["timeRange", ["x"], false],
];

for (const [name, values, answer] of ROWS) {
  test(`${name}(${values.map((value) => JSON.stringify(value)).join(", ")}) is ${JSON.stringify(answer)}`, () => {
    assert.equal(call(name, values), answer);
  });
}

test("spans are those of GMT where a script says so", () => {
  const now = new Date(Date.UTC(2026, 10, 28, 0, 5, 30));
  assert.deepEqual(
    [
      call("weekdayRange", ["SAT", "GMT"], { now }),
      call("dateRange", [28, "GMT"], { now }),
      call("timeRange", [0, 0, 0, 0, 5, 30, "GMT"], { now }),
      call("timeRange", [1, 23, "GMT"], { now }),
    ],
    [true, true, true, false],
  );
});

test("a machine without an address is this machine alone", () => {
  assert.equal(call("myIpAddress", [], { own: ["2001:db8::9"] }), "127.0.0.1");
  assert.equal(call("myIpAddressEx", [], { own: [] }), "");
});
