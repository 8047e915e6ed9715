import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempDir } from "../../harness/temp.ts";
import { peersIn } from "./found.ts";

test("the peers that are in the folder are measured, and what another one lacks is said in one line", () => {
  using dir = new TempDir();
  for (const name of ["frps", "frpc", "proxy-agent"]) {
    writeFileSync(dir.file(name), "#!/bin/sh\necho 0.1\n", { mode: 0o755 });
  }
  const said: string[] = [];
  const found = peersIn(dir.path, (line) => said.push(line));
  assert.deepEqual(
    found.map(({ name, version }) => [name, version]),
    [["frp", "0.1"]],
  );
  assert.deepEqual(said, [`Konnectivity is not measured: ${dir.file("proxy-server")} cannot be run`]);
});
