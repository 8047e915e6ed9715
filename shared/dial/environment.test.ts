import assert from "node:assert/strict";
import { test } from "node:test";
import { type Environment, environmentProxy, environmentRoute } from "./environment.ts";
import { formatRoute } from "./proxy-route.ts";

const SERVER = { host: "culvert.example.com", port: 443 };

const ROWS: readonly [title: string, env: Environment, way: string | undefined][] = [
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

for (const [title, env, way] of ROWS) {
  test(title, () => {
    const found = environmentRoute(env, SERVER);
    assert.equal(found === undefined ? undefined : formatRoute(found), way);
  });
}

test("a variable that is no proxy is named and not shown", () => {
  assert.throws(
    () => environmentProxy({ https_proxy: "gopher://anna:secret@proxy" }),
    /^Error: https_proxy must begin/,
  );
  assert.throws(
    () => environmentProxy({ https_proxy: "gopher://anna:secret@proxy" }),
    (e: Error) => !e.message.includes("secret"),
  );
});
