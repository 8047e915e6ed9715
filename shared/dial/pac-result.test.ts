import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePacResult } from "./pac.ts";
import { formatRoute } from "./proxy-route.ts";

const SCRIPT = { from: "PAC", isUnverified: false };

const ROWS: readonly [text: string, ways: readonly string[] | undefined][] = [
  ["DIRECT", ["direct"]],
  ["PROXY a:3128", ["http://a:3128 (PAC)"]],
  ["HTTP a:3128", ["http://a:3128 (PAC)"]],
  ["HTTPS a:3129", ["https://a:3129 (PAC)"]],
  ["SOCKS a:1081", ["socks5h://a:1081 (PAC)"]],
  ["SOCKS5 a:1081", ["socks5h://a:1081 (PAC)"]],
  ["PROXY a; HTTPS a; SOCKS5 a", ["http://a:80 (PAC)", "https://a:443 (PAC)", "socks5h://a:1080 (PAC)"]],
  ["PROXY [fd00::1]:3128", ["http://[fd00::1]:3128 (PAC)"]],
  ["PROXY a:1; PROXY b:2; DIRECT", ["http://a:1 (PAC)", "http://b:2 (PAC)", "direct"]],
  [" proxy\ta:1 ;;direct; ", ["http://a:1 (PAC)", "direct"]],
  ["", ["direct"]],
  [" ; ", ["direct"]],
  ["SOCKS4 a:1; PROXY b:2", ["http://b:2 (PAC)"]],
  ["PROXY a:1 b:2; DIRECT", ["direct"]],
  ["PROXY", undefined],
  ["PROXY a:99999", undefined],
  ["SOCKS4 a:1", undefined],
  ["undefined", undefined],
  ["[object Object]", undefined],
  ["PROXY http://a:1/", undefined],
];

for (const [text, ways] of ROWS) {
  test(`${JSON.stringify(text)} is ${ways?.join(", then ") ?? "no answer"}`, () => {
    assert.deepEqual(parsePacResult(text, SCRIPT)?.map(formatRoute), ways);
  });
}

test("of an endless list the beginning is taken", () => {
  assert.equal(parsePacResult("PROXY a:1;".repeat(1_000), SCRIPT)?.length, 32);
});
