import assert from "node:assert/strict";
import { test } from "node:test";
import { formatServer, wantedServers } from "./servers.ts";

const NONE = { server: "", serverAddress: "", proxyServerHost: "", proxyServerPort: 8091 };

test("the server is shown as the URL it is, with the address that is dialled in its place", () => {
  for (const [options, shown] of [
    [{ server: "wss://tunnel.example.com" }, "wss://tunnel.example.com:443/culvert/v1/tunnel"],
    [{ proxyServerHost: "fd00::1" }, "wss://[fd00::1]:8091/culvert/v1/tunnel"],
    [
      { server: "wss://tunnel.example.com/t", serverAddress: "10.0.0.1:8443" },
      "wss://tunnel.example.com:443/t at 10.0.0.1:8443",
    ],
  ] as const) {
    assert.deepEqual(wantedServers({ ...NONE, ...options }).map(formatServer), [shown]);
  }
});
