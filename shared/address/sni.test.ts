import assert from "node:assert/strict";
import { test } from "node:test";
import { sniOf } from "./sni.ts";

test("a name is asked for, and an address of either family is not", () => {
  assert.deepEqual(sniOf("server.example"), { servername: "server.example" });
  assert.deepEqual(sniOf("192.0.2.1"), {});
  assert.deepEqual(sniOf("2001:db8::1"), {});
});
