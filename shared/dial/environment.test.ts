import assert from "node:assert/strict";
import { test } from "node:test";
import { bypassesProxy, type Environment, environmentProxy, environmentRoute } from "./environment.ts";
import { formatRoute } from "./proxy-route.ts";
import { NO_PROXY_ROWS } from "./testing/no-proxy-rows.ts";

const SERVER = { host: "culvert.example.com", port: 443 };

const ROWS: readonly [title: string, env: Environment, route: string | undefined][] = [
  ["nothing is set", {}, undefined],
  ["HTTP_PROXY is for http:// only", { HTTP_PROXY: "http://plain:1", http_proxy: "http://plain:2" }, undefined],
  ["HTTPS_PROXY", { HTTPS_PROXY: "http://a:1" }, "http://a:1 (HTTPS_PROXY)"],
  ["https_proxy", { https_proxy: "http://a:1" }, "http://a:1 (https_proxy)"],
  ["upper case comes first", { https_proxy: "http://a:1", HTTPS_PROXY: "http://b:1" }, "http://b:1 (HTTPS_PROXY)"],
  ["an empty one is not set", { HTTPS_PROXY: "", https_proxy: "http://b:1" }, "http://b:1 (https_proxy)"],
  ["ALL_PROXY", { ALL_PROXY: "socks5://a" }, "socks5://a:1080 (ALL_PROXY)"],
  ["all_proxy", { all_proxy: "socks5h://a" }, "socks5h://a:1080 (all_proxy)"],
  ["the one for TLS before the one for all", { ALL_PROXY: "http://a", https_proxy: "b" }, "http://b:80 (https_proxy)"],
  ["NO_PROXY", { HTTPS_PROXY: "http://a:1", NO_PROXY: "example.com" }, "direct"],
  ["no_proxy", { HTTPS_PROXY: "http://a:1", no_proxy: ".example.com" }, "direct"],
  ["an empty NO_PROXY", { HTTPS_PROXY: "http://a:1", NO_PROXY: "", no_proxy: "*" }, "direct"],
  ["NO_PROXY comes first", { ALL_PROXY: "a:1", NO_PROXY: "x.y", no_proxy: "*" }, "http://a:1 (ALL_PROXY)"],
  ["NO_PROXY without a proxy says nothing", { NO_PROXY: "*" }, undefined],
];

for (const [title, env, route] of ROWS) {
  test(title, () => {
    const found = environmentRoute(env, SERVER);
    assert.equal(found === undefined ? undefined : formatRoute(found), route);
  });
}

test("an invalid variable is named without its value", () => {
  assert.throws(
    () => environmentProxy({ https_proxy: "gopher://anna:secret@proxy" }),
    /^Error: https_proxy must begin/,
  );
  assert.throws(
    () => environmentProxy({ https_proxy: "gopher://anna:secret@proxy" }),
    (e: Error) => !e.message.includes("secret"),
  );
});

for (const [noProxy, host, port, proxied] of NO_PROXY_ROWS) {
  const route = proxied ? "through the proxy" : "past the proxy";
  const list = noProxy.length > 40 ? `${noProxy.slice(0, 40)}…` : noProxy;
  test(`NO_PROXY=${JSON.stringify(list)}: ${host}:${port} is reached ${route}`, () => {
    assert.equal(bypassesProxy(noProxy, { host, port }), !proxied);
  });
}

test("this machine is excepted in every spelling of its name", () => {
  assert.ok(bypassesProxy("", { host: "LocalHost", port: 443 }));
});
