import assert from "node:assert/strict";
import { test } from "node:test";
import { addresses, hosts, resolver } from "../testing/name-resolver.ts";
import {
  findAddresses,
  formatServer,
  parseHostPort,
  parseServerUrl,
  repeatedServer,
  wantedServers,
} from "./servers.ts";

const NONE = { server: [], serverAddress: "", proxyServerHost: "", proxyServerPort: 8091 };
const PATH = "/culvert/v1/tunnel";

test("every --server is wanted, in the order given; without one it is Konnectivity's host and port", () => {
  assert.deepEqual(wantedServers({ ...NONE, server: ["wss://b.example", "wss://a.example:8091/t"] }), [
    { host: "b.example", port: 443, path: PATH },
    { host: "a.example", port: 8091, path: "/t" },
  ]);
  assert.deepEqual(wantedServers({ ...NONE, proxyServerHost: "b" }), [{ host: "b", port: 8091, path: PATH }]);
});

test("an address replaces what is dialled, never the name that is verified", () => {
  const server = ["wss://a.example"];
  assert.deepEqual(wantedServers({ ...NONE, server, serverAddress: "10.0.0.1" }), [
    { host: "a.example", port: 443, path: PATH, address: { host: "10.0.0.1", port: 443 } },
  ]);
  const [located] = wantedServers({ ...NONE, server, serverAddress: "10.0.0.1:8" });
  assert.deepEqual(located?.address, { host: "10.0.0.1", port: 8 });
});

test("a server is shown as the URL it is, with the address that is dialled in its place", () => {
  for (const [options, shown] of [
    [{ server: ["wss://tunnel.example.com"] }, "wss://tunnel.example.com:443/culvert/v1/tunnel"],
    [{ proxyServerHost: "fd00::1" }, "wss://[fd00::1]:8091/culvert/v1/tunnel"],
    [
      { server: ["wss://tunnel.example.com/t"], serverAddress: "10.0.0.1:8443" },
      "wss://tunnel.example.com:443/t at 10.0.0.1:8443",
    ],
  ] as const) {
    assert.deepEqual(wantedServers({ ...NONE, ...options }).map(formatServer), [shown]);
  }
});

test("a server that is named twice is found in whatever spelling; another port or path is another server", () => {
  const repeated = (...server: string[]) => repeatedServer(wantedServers({ ...NONE, server }));
  assert.equal(repeated("wss://a", "wss://b", "WSS://A:443/"), "wss://a:443/culvert/v1/tunnel");
  assert.equal(repeated("wss://a", "wss://b", "wss://a:8091", "wss://a/t"), undefined);
  assert.equal(repeated(), undefined);
});

test("a URL without port and path means 443 and the usual path", () => {
  const table: [string, string, number, string][] = [
    ["wss://a.example", "a.example", 443, "/culvert/v1/tunnel"],
    ["wss://a.example/", "a.example", 443, "/culvert/v1/tunnel"],
    ["WSS://A.example:8091", "a.example", 8091, "/culvert/v1/tunnel"],
    ["wss://a.example:443/other", "a.example", 443, "/other"],
    ["wss://[::1]:9/x", "::1", 9, "/x"],
    ["wss://10.0.0.1", "10.0.0.1", 443, "/culvert/v1/tunnel"],
  ];
  for (const [text, host, port, path] of table) assert.deepEqual(parseServerUrl(text), { host, port, path }, text);
});

test("a URL of SRV records is shown as it is, and stands for the name after the labels", () => {
  const [server] = wantedServers({ ...NONE, server: ["WSS+SRV://_Culvert._tcp.tunnel.Example.com/t"] });
  const expected = { host: "tunnel.example.com", port: 443, path: "/t", srv: "_culvert._tcp.tunnel.example.com" };
  assert.deepEqual(server, expected);
  assert.equal(formatServer(expected), "wss+srv://_culvert._tcp.tunnel.example.com/t");
  assert.equal(parseServerUrl("wss+srv://_culvert._tcp.example.com").path, PATH);
});

test("a URL of another kind is refused, and its password is not repeated", () => {
  const table: [string, RegExp][] = [
    ["a.example:443", /needs a URL such as wss:/],
    ["", /needs a URL/],
    ["wss+srv://example.com", /needs a name of SRV records/],
    ["wss+srv://_culvert.example.com", /needs a name of SRV records/],
    ["wss+srv://_culvert._tcp.", /needs a name of SRV records/],
    ["wss+srv://_culvert._tcp.example.com:443", /must not name a port/],
    ["ws://a", /must be wss/],
    ["http://a", /must be wss/],
    ["https://a", /must begin with wss/],
    ["wss://", /not a valid URL/],
    ["wss://a:99999", /not a valid URL/],
    ["wss://a:0", /names port 0, which cannot be dialled/],
    ["wss://me:hunter2@a", /must not contain a user or password/],
    ["wss://a/x?token=hunter2", /must not contain \? or #/],
  ];
  for (const [text, pattern] of table) {
    assert.throws(() => parseServerUrl(text), pattern, text);
    assert.throws(
      () => parseServerUrl(text),
      (error: Error) => !error.message.includes("hunter2"),
    );
  }
});

test("an address is a host with or without port, IPv6 in brackets when a port follows", () => {
  assert.deepEqual(parseHostPort("10.0.0.1:443"), { host: "10.0.0.1", port: 443 });
  assert.deepEqual(parseHostPort("lb.example"), { host: "lb.example" });
  assert.deepEqual(parseHostPort("[fe80::1%eth0]:8"), { host: "fe80::1%eth0", port: 8 });
  assert.deepEqual(parseHostPort("fe80::1"), { host: "fe80::1" });
  for (const text of ["", ":1", "a:0", "a:70000", "a:b", "wss://a", "a b", "[::1", "a@b"]) {
    assert.throws(() => parseHostPort(text), /needs HOST or HOST:PORT/, text);
  }
});

const NAMED = parseServerUrl("wss://tunnel.example.com:8091");

test("of a name with addresses of both families those of one are servers", async () => {
  for (const [found, expected] of [
    [
      ["10.0.0.1", "10.0.0.2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [["fd00::1", "10.0.0.1"], ["fd00::1"]],
    [["10.0.0.1", "fd00::1"], ["10.0.0.1"]],
    [
      ["fd00::1", "10.0.0.1", "10.0.0.2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [
      ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"],
      ["10.0.0.1", "10.0.0.2"],
    ],
    [["10.0.0.1", "10.0.0.1"], ["10.0.0.1"]],
    [[], []],
  ] as const) {
    const { addresses: seen } = await findAddresses(NAMED, resolver({ find: addresses(...found) }));
    assert.deepEqual(
      seen.map(({ host }) => host),
      expected,
      found.join(),
    );
  }
});

test("an answer is asked for again at its TTL, within bounds, and soon where none is known", async () => {
  for (const [seconds, ms] of [
    [60, 60_000],
    [0, 5_000],
    [86_400, 300_000],
    [undefined, 15_000],
  ] as const) {
    const ttl = async () => seconds ?? Promise.reject(new Error("of the hosts file"));
    const { askAgainMs } = await findAddresses(NAMED, resolver({ find: addresses("10.0.0.1"), ttl }));
    assert.equal(askAgainMs, ms);
  }
});

test("an answer of any length is bounded", async () => {
  const many = Array.from({ length: 300 }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const { addresses: seen } = await findAddresses(NAMED, resolver({ find: addresses(...many) }));
  assert.equal(seen.length, 64);
});

test("SRV records say hosts and ports, those of the lowest number first, and once each", async () => {
  const srv = async () => [
    { name: "b.example.com", port: 2, priority: 20, weight: 0 },
    { name: "a.example.com", port: 1, priority: 10, weight: 3 },
    { name: "c.example.com", port: 3, priority: 10, weight: 0 },
    { name: "a.example.com", port: 1, priority: 30, weight: 0 },
  ];
  const location = parseServerUrl("wss+srv://_culvert._tcp.example.com");
  const { addresses: seen } = await findAddresses(location, resolver({ srv, ttl: async () => 30 }));
  assert.deepEqual(hosts(seen), ["a.example.com 1", "c.example.com 3", "b.example.com 2"]);
  assert.deepEqual(seen[0], { host: "a.example.com", port: 1, priority: 10, weight: 3 });
});

test("SRV records without a host are no servers, and an answer without servers is a failure", async () => {
  const location = parseServerUrl("wss+srv://_culvert._tcp.example.com");
  for (const names of [[], [""], ["."]]) {
    const srv = async () => names.map((name) => ({ name, port: 0, priority: 0, weight: 0 }));
    await assert.rejects(findAddresses(location, resolver({ srv })), /no record names a host/);
  }
});

test("with --server-address its name is asked for in place of the server's", async () => {
  const asked: string[] = [];
  const find = (name: string) => {
    asked.push(name);
    return addresses("10.0.0.1")(name);
  };
  const location = { ...NAMED, address: { host: "lb.example.com", port: 7 } };
  const { addresses: seen } = await findAddresses(location, resolver({ find }));
  assert.deepEqual([asked, hosts(seen)], [["lb.example.com"], ["10.0.0.1 7"]]);
});
