import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { shellQuoted } from "../../shared/basics/text.ts";
import { ownCommand } from "./terminal.ts";

test("a shell reads a quoted path back as it was", () => {
  for (const path of ["/tmp/a.b_c+d-e", "it's", "a b", "$(echo x)", "`x`", '"', "\\", "a\nb"]) {
    const { stdout } = spawnSync("sh", ["-c", `printf %s ${shellQuoted(path)}`], { encoding: "utf8" });
    assert.equal(stdout, path);
  }
  assert.equal(shellQuoted("/tmp/a.b_c+d-e"), "/tmp/a.b_c+d-e");
});

test("the program calls itself as it was called", () => {
  assert.equal(ownCommand("/usr/local/bin/culvert"), "culvert");
  assert.equal(ownCommand("/home/me/culvert/dist/cli/main.js"), "node /home/me/culvert/dist/cli/main.js");
  assert.equal(ownCommand("/my clone/dist/cli/main.js"), "node '/my clone/dist/cli/main.js'");
});
