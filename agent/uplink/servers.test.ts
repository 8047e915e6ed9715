import assert from "node:assert/strict";
import { test } from "node:test";
import { formatServer, repeatedServer, wantedServers } from "./servers.ts";

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
