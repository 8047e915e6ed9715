import assert from "node:assert/strict";
import { test } from "node:test";
import { overlap } from "./listen-address.ts";

const TABLE: ReadonlyArray<readonly [one: string, other: string, expected: boolean]> = [
  ["", "", true],
  ["", "127.0.0.1", true],
  ["::", "10.0.0.1", true],
  ["0:0:0:0:0:0:0:0", "10.0.0.1", true],
  ["", "::1", true],
  ["", "0.0.0.0", true],
  ["0.0.0.0", "127.0.0.1", true],
  ["0.0.0.0", "localhost", true],
  ["0.0.0.0", "::1", false],
  ["127.0.0.1", "127.0.0.1", true],
  ["127.0.0.1", "127.0.0.2", false],
  ["::1", "0:0:0:0:0:0:0:1", true],
  ["fd00::1", "fd00::2", false],
  ["localhost", "LOCALHOST", true],
  ["fe80::1%eth0", "fe80::1%eth1", false],
  ["fe80::1%eth0", "FE80:0::1%eth0", true],
  ["fe80::1%eth0", "::", true],
  ["::%eth0", "10.0.0.1", true],
  ["::1%lo", "::1", true],
  ["::ffff:10.0.0.1", "10.0.0.1", true],
  ["::ffff:a00:1", "10.0.0.1", true],
  ["::ffff:10.0.0.1", "10.0.0.2", false],
  ["::ffff:10.0.0.1", "0.0.0.0", true],
  ["::ffff:0.0.0.0", "10.0.0.1", true],
];

for (const [one, other, expected] of TABLE) {
  test(`"${one}" and "${other}" ${expected ? "cannot" : "can"} have the same port`, () => {
    assert.deepEqual([overlap(one, other), overlap(other, one)], [expected, expected]);
  });
}
