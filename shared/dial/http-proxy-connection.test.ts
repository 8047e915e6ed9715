import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { ProxyConnection } from "./http-proxy-connection.ts";

test("the time for a body ends with the body: the connection behind it stays for the next request, and the tunnel", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [near, far] = duplexPair();
  const connection = new ProxyConnection(near as Socket);
  far.write("HTTP/1.1 407 Login\r\nContent-Length: 4\r\n\r\nbody");
  const { head } = await connection.request("CONNECT a:1 HTTP/1.1\r\n\r\n");
  assert.equal(await connection.skipBody(head ?? assert.fail("no answer")), true);
  t.mock.timers.tick(60_000);
  assert.equal(near.destroyed, false);
});
