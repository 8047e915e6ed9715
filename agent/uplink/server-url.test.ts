import assert from "node:assert/strict";
import { test } from "node:test";
import { parseHostPort, parseServerUrl } from "./server-url.ts";

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

test("a URL of another kind is refused, and its password is not repeated", () => {
  const table: [string, RegExp][] = [
    ["a.example:443", /needs a URL such as wss:/],
    ["", /needs a URL/],
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
