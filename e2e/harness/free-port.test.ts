import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { test } from "node:test";
import { promisify } from "node:util";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";
import { ManagedProcess } from "./processes.ts";
import { freePort } from "./targets/absent.ts";

test("test processes that run at a time never get the same port", async () => {
  const own = await Promise.all(Array.from({ length: 200 }, freePort));
  const script = `
    const { freePort } = await import(${JSON.stringify(source("./targets/absent.ts", import.meta.url).href)});
    console.log(JSON.stringify(await Promise.all(Array.from({ length: 200 }, freePort))));
    process.exit();`;
  const args = [...RUN_SOURCES, "--input-type=module", "--eval", script];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const others: number[] = JSON.parse(stdout);
  assert.equal(new Set([...own, ...others]).size, 400);
});

test("a program is not taken for healthy because another one answers at its port", async () => {
  const port = await freePort();
  const other = createServer((_request, response) => response.end("ok"));
  await new Promise<void>((resolve) => other.listen(port, "127.0.0.1", resolve));
  await using silent = new ManagedProcess("silent", "--eval", ["setInterval(() => {}, 1_000)"]);
  await assert.rejects(silent.waitForHealth(`http://127.0.0.1:${port}/readyz`, 500), /200 from/);
  other.close();
});
