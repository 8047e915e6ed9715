import assert from "node:assert/strict";
import { test } from "node:test";
import { addressesOverlap, listenError } from "./listen-address.ts";
import { ConfigError } from "./options.ts";

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
    assert.deepEqual([addressesOverlap(one, other), addressesOverlap(other, one)], [expected, expected]);
  });
}

const AT = { port: 8090, host: "192.0.2.1", option: "--server-port", hostOption: "--server-bind-address" };

for (const [code, sentence] of [
  ["EADDRINUSE", /^Cannot listen on 192\.0\.2\.1 port 8090: it is in use by another process; .* \(--server-port\)\.$/],
  ["EACCES", /this user may not use the port; .* \(--server-port\)\.$/],
  ["EADDRNOTAVAIL", /this host does not have the address; .* \(--server-bind-address\)\.$/],
  ["EAFNOSUPPORT", /no addresses of this kind; .* \(--server-bind-address\)\.$/],
  ["ENOTFOUND", /the name does not resolve; .* \(--server-bind-address\)\.$/],
] as const) {
  test(`a listener that fails with ${code} names the flag at fault, of the port or of its address`, () => {
    const error = listenError(Object.assign(new Error(), { code }), AT);
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, sentence);
  });
}

test("an error that no flag cures stays as it is", () => {
  const error = Object.assign(new Error("no"), { code: "ENOMEM" });
  assert.equal(listenError(error, AT), error);
});
