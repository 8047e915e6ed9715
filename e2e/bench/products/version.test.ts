import assert from "node:assert/strict";
import { test } from "node:test";
import { versionIn } from "./version.ts";

test("a program of a released module has the module's version, and one of a clone its commit", () => {
  const lines = (version: string, ...more: string[]) =>
    ["proxy-server: go1.26.2", "\tpath\texample/cmd/server", `\tmod\texample\t${version}`, ...more].join("\n");
  assert.equal(versionIn(lines("v0.36.0")), "v0.36.0");
  assert.equal(versionIn(lines("(devel)", "\tbuild\tvcs.revision=0123456789abcdef0123")), "commit 0123456789ab");
  assert.equal(versionIn(lines("(devel)")), "unknown version");
  assert.equal(versionIn(""), "unknown version");
});
