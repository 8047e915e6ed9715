import assert from "node:assert/strict";
import { test } from "node:test";
import { isOwnHost } from "./admin.ts";

const ALLOWED = ["Admin.Example", "culvert-server"];

const TABLE: ReadonlyArray<readonly [host: string | undefined, isOwn: boolean]> = [
  ["127.0.0.1", true],
  ["127.0.0.1:8095", true],
  ["10.1.2.3:1", true],
  ["[::1]", true],
  ["[::1]:8095", true],
  ["[fd00::5]:", true],
  ["localhost", true],
  ["LocalHost:8095", true],
  ["localhost.", true],
  ["admin.example:8095", true],
  ["ADMIN.EXAMPLE", true],
  ["culvert-server", true],
  [undefined, false],
  ["", false],
  [":8095", false],
  ["evil.example", false],
  ["evil.example:8095", false],
  ["localhost.evil.example", false],
  ["127.0.0.1.evil.example", false],
  ["2130706433", false],
  ["0x7f.1", false],
  ["::1", false],
  ["[evil.example]", false],
  ["[::1].evil.example", false],
  ["[]", false],
  ["sub.admin.example", false],
  ["localhost:8095:1", false],
  ["evil.example/localhost", false],
  ["user@localhost", false],
];

for (const [host, isOwn] of TABLE) {
  test(`Host ${host ?? "missing"}: ${isOwn ? "the admin port answers" : "refused"}`, () => {
    assert.equal(isOwnHost(host, ALLOWED), isOwn);
  });
}
