import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { startSocks5 } from "../harness/sidecar.ts";
import { startWorld } from "../harness/world.ts";

const BYTES = 3_000_000;

/** What curl prints; its proxies come from its arguments alone. */
async function curl(...args: string[]): Promise<string> {
  const options = { env: { PATH: process.env["PATH"] }, encoding: "latin1", maxBuffer: 2 * BYTES } as const;
  const { stdout } = await promisify(execFile)("curl", ["-sS", "--max-time", "20", ...args], options);
  return stdout;
}

test("curl reaches a target through the SOCKS5 proxy, by name and by address", async () => {
  await using world = await startWorld({ targets: ["http"] });
  await using proxy = await startSocks5(world);
  const { port } = world.targets.http;
  for (const host of ["127.0.0.1", "localhost"]) {
    const hello = await curl("--socks5-hostname", proxy.address, `http://${host}:${port}/`);
    assert.equal(hello, "hello from the target\n");
  }
  const bytes = await curl("--socks5-hostname", proxy.address, `http://127.0.0.1:${port}/bytes/${BYTES}`);
  assert.equal(bytes.length, BYTES);
});
