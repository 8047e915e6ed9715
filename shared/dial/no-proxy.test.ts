import assert from "node:assert/strict";
import { test } from "node:test";
import { bypassesProxy } from "./environment.ts";
import { NO_PROXY_ROWS } from "./testing/no-proxy-rows.ts";

for (const [noProxy, host, port, proxied] of NO_PROXY_ROWS) {
  const way = proxied ? "through the proxy" : "past the proxy";
  const list = noProxy.length > 40 ? `${noProxy.slice(0, 40)}…` : noProxy;
  test(`NO_PROXY=${JSON.stringify(list)}: ${host}:${port} is reached ${way}`, () => {
    assert.equal(bypassesProxy(noProxy, { host, port }), !proxied);
  });
}

test("however this machine's name is written, no proxy is asked for it", () => {
  assert.ok(bypassesProxy("", { host: "LocalHost", port: 443 }));
});
