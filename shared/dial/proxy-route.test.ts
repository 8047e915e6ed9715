import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bypassesProxy,
  combineFaults,
  type Environment,
  environmentProxy,
  environmentRoute,
  formatProxy,
  formatRoute,
  parseProxyUrl,
  RouteFault,
} from "./proxy-route.ts";
import { NO_PROXY_ROWS } from "./testing/no-proxy-rows.ts";

/** Text → `formatProxy`, user and password. */
const URLS: readonly [text: string, proxy: string, user?: string, password?: string][] = [
  ["http://proxy.corp:3128", "http://proxy.corp:3128"],
  ["proxy:3128", "http://proxy:3128"],
  ["proxy", "http://proxy:80"],
  ["10.0.0.1:8080", "http://10.0.0.1:8080"],
  ["[2001:DB8::1]:3128", "http://[2001:db8::1]:3128"],
  ["http://proxy", "http://proxy:80"],
  ["http://proxy:/", "http://proxy:80"],
  ["https://proxy", "https://proxy:443"],
  ["https://proxy:80", "https://proxy:80"],
  ["socks5://proxy", "socks5://proxy:1080"],
  ["socks5://proxy:80", "socks5://proxy:80"],
  ["SOCKS5H://Proxy.Corp", "socks5h://proxy.corp:1080"],
  ["https://[::1]/", "https://[::1]:443"],
  ["http://[fe80::1%25eth0]:3128", "http://[fe80::1%eth0]:3128"],
  ["http://bücher.example:1", "http://xn--bcher-kva.example:1"],
  [" http://proxy:3128\n", "http://proxy:3128"],
  ["http://@proxy:3128", "http://proxy:3128"],
  ["http://anna@proxy", "http://proxy:80", "anna", ""],
  ["http://anna:@proxy", "http://proxy:80", "anna", ""],
  ["anna:secret@proxy:3128", "http://proxy:3128", "anna", "secret"],
  ["http://corp%5Canna:p%40ss%3A%2F%25w%C3%B6rd@proxy:3128", "http://proxy:3128", "corp\\anna", "p@ss:/%wörd"],
  ["socks5://anna:a:b@c@[fd00::1]:9", "socks5://[fd00::1]:9", "anna", "a:b@c"],
];

for (const [text, formatted, user, password] of URLS) {
  test(`${text.trim()} is ${formatted}${user === undefined ? "" : ` for ${user}`}`, () => {
    const proxy = parseProxyUrl(text);
    assert.equal(formatProxy(proxy), formatted);
    assert.deepEqual(proxy.credentials, user === undefined ? undefined : { user, password });
  });
}

const REFUSED: readonly [text: string, sentence: RegExp][] = [
  ["ftp://anna:secret@proxy", /^must begin with http:\/\/, https:\/\/, socks5:\/\/ or socks5h:\/\//],
  ["socks4://secret", /^must begin with/],
  ["://secret", /^must begin with/],
  ["constructor://secret", /^must begin with/],
  ["", /^needs a legal host name/],
  ["http://", /^needs a legal host name/],
  ["http://anna:secret@", /^needs a legal host name/],
  ["http://se cret:3128", /^needs a legal host name/],
  ["http://proxy:secret", /^needs a host and a port/],
  ["http:secret:3128", /^needs a host and a port/],
  ["fd00::5ec", /^needs a host and a port, an IPv6 address in brackets/],
  ["http://[secret]:1", /^has something else than an IPv6 address/],
  ["http://proxy:65536", /^needs a port from 1 to 65535/],
  ["http://proxy:0", /^needs a port from 1 to 65535/],
  ["http://anna:secret/1@proxy:3128", /%2F/],
  ["http://anna:12#secret@proxy:3128", /%23/],
  ["http://proxy:3128/secret", /^must end after host and port/],
  ["http://anna:100%secret@proxy:3128", /write it %25/],
  ["http://anna:secr%E9t@proxy:3128", /bytes in its user or password that are not UTF-8/],
  ["http://anna:secret%00@proxy:3128", /a control character in its user or password/],
  ["http://an%0Ana:secret@proxy:3128", /a control character in its user or password/],
  ["http://anna:sec\tret@proxy:3128", /a control character in its user or password/],
];

for (const [text, sentence] of REFUSED) {
  test(`${JSON.stringify(text)} is refused without being repeated`, () => {
    assert.throws(
      () => parseProxyUrl(text),
      ({ message }: Error) => sentence.test(message) && !/secret|anna|5ec/.test(message),
    );
  });
}

const SERVER = { host: "culvert.example.com", port: 443 };

const ENVIRONMENTS: readonly [title: string, env: Environment, route: string | undefined][] = [
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

for (const [title, env, route] of ENVIRONMENTS) {
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

test("what several routes say is one fault, with the wait that the first of them asks for", () => {
  const faults = ["a", "b"].map(
    (at) => new RouteFault("proxy_unavailable", `${at} is busy`, { at, ...(at === "a" && { retryAfterMs: 7_000 }) }),
  );
  const { fault, at, message, retryAfterMs } = combineFaults(faults);
  assert.deepEqual([fault, at, message, retryAfterMs], ["proxy_unavailable", "a", "a is busy; b is busy", 7_000]);
});
