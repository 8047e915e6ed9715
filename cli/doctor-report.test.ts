import assert from "node:assert/strict";
import { test } from "node:test";
import { headOf, headText } from "./doctor-report.ts";

const commandOf = (...argv: string[]): string => headOf(argv).command;

test("a report begins with version, host, date and command line", () => {
  const head = headOf(["--server", "wss://server:8091"], new Date("2026-06-01T12:00:00Z"));
  assert.match(
    headText(head),
    /^culvert \S+, Node v\d+\.\S+, on \S+, 2026-06-01T12:00:00\.000Z\n\$ culvert doctor --server wss:\/\/server:8091\n$/,
  );
});

for (const [value, shown] of [
  ["http://me:secret@proxy:3128", "http://***@proxy:3128"],
  ["http://me:se,cr/e@t@proxy", "http://***@proxy"],
  ["http://one:3128,http://me:secret@two", "http://***@two"],
  ["me:secret@proxy", "***@proxy"],
  ["http://pac.corp/proxy.pac?token=secret", "http://pac.corp/proxy.pac?***"],
  ["http://pac.corp/proxy.pac?token=secret@1", "http://***@1"],
  ["socks5h://proxy:1080", "socks5h://proxy:1080"],
  ["/etc/culvert/ca.crt", "/etc/culvert/ca.crt"],
] as const) {
  test(`the command line shows ${shown} where ${value.includes("secret") ? "a secret" : "none"} was given`, () => {
    assert.equal(
      commandOf("--proxy", value, `--pac=${value}`).replaceAll("'", ""),
      [...["culvert doctor --proxy", shown], `--pac=${shown}`].join(" "),
    );
  });
}

test("a word that a shell would split is quoted, and control characters are not shown", () => {
  assert.equal(commandOf("--agent-id", "two words"), "culvert doctor --agent-id 'two words'");
  assert.match(commandOf("--agent-id=\u001b[2J"), /^[\x20-\x7e]+$/);
});
