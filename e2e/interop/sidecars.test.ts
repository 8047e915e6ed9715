import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { startHttp, startSocks5 } from "../harness/sidecar.ts";
import { startWorld } from "../harness/world.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

const HELLO = "hello from the target\n";
const skip = goMissing ?? false;

test("Go's clients reach http and https targets through both sidecars", { skip }, async () => {
  const program = await goPeerBinary("go-proxies");
  await using world = await startWorld({ targets: ["http", "https"] });
  await using socks = await startSocks5(world);
  await using http = await startHttp(world);
  const { http: plain, https: secure } = world.targets;
  const urls = [`http://localhost:${plain.port}/`, `https://localhost:${secure.port}/`];
  for (const proxy of [`socks5://${socks.address}`, `x-socks5://${socks.address}`, `http://${http.address}`]) {
    const { stdout } = await promisify(execFile)(program, [proxy, ...urls, ...urls], { timeout: 30_000 });
    assert.equal(stdout, HELLO.repeat(4), proxy);
  }
});
