import assert from "node:assert/strict";
import { test } from "node:test";
import { SourceCidrs } from "./access-rules.ts";

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
