import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { isOwnPort } from "./own-port.ts";

const everywhere = { address: "::", family: "IPv6", port: 8090 };
const ELSEWHERE = "203.0.113.9:40000";
const HERE = "::ffff:127.0.0.1:40000";
const own = Object.values(networkInterfaces()).flatMap((each) => each?.filter(({ internal }) => !internal) ?? [])[0];

for (const [what, dialled, remote, expected] of [
  ["another port is a target like any other", "127.0.0.1:8092", HERE, false],
  ["the loopback of this machine", "127.0.0.1:8090", HERE, true],
  ["another address of the loopback interface", "127.9.9.9:8090", HERE, true],
  ["IPv6's loopback", "[::1]:8090", HERE, true],
  ["a mapped address", "[::ffff:127.0.0.1]:8090", HERE, true],
  ["the loopback of another machine, where the agent runs", "127.0.0.1:8090", ELSEWHERE, false],
  ["an address that this machine has not", "192.0.2.1:8090", ELSEWHERE, false],
  ["what is no address", ":8090", ELSEWHERE, false],
] as const) {
  test(`${what}: ${expected ? "leads back" : "does not lead back"}`, () => {
    assert.equal(isOwnPort(dialled, remote, everywhere), expected);
  });
}

test("an address of this machine leads back whoever dials it, unless the port is open on another one only", (t) => {
  if (own === undefined) return t.skip("no interface but loopback");
  const dialled = own.family === "IPv6" ? `[${own.address}]:8090` : `${own.address}:8090`;
  assert.equal(isOwnPort(dialled, ELSEWHERE, everywhere), true);
  assert.equal(isOwnPort(dialled, ELSEWHERE, { ...everywhere, address: "127.0.0.1" }), false);
});
