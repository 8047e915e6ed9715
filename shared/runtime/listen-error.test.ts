import assert from "node:assert/strict";
import { test } from "node:test";
import { listenError } from "../config/listen-address.ts";
import { ConfigError } from "../config/options.ts";

const AT = { port: 8090, host: "192.0.2.1", option: "--server-port", hostOption: "--server-bind-address" };

for (const [code, sentence] of [
  ["EADDRINUSE", /^Cannot listen on 192\.0\.2\.1 port 8090: it is in use by another process; .* \(--server-port\)\.$/],
  ["EACCES", /this user may not use the port; .* \(--server-port\)\.$/],
  ["EADDRNOTAVAIL", /the address is none of this host's; .* \(--server-bind-address\)\.$/],
  ["EAFNOSUPPORT", /no such kind of address; .* \(--server-bind-address\)\.$/],
  ["ENOTFOUND", /no name that resolves; .* \(--server-bind-address\)\.$/],
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
