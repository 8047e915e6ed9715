import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough, established, isAnswered } from "../harness/caller.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { certificateFlags, KonnectivityAgent } from "../harness/konnectivity-agent.ts";
import { konnectivityServer } from "../harness/konnectivity-server.ts";
import { halfCloseTarget, sourceTarget } from "../harness/targets/plain.ts";
import type { TcpTarget } from "../harness/targets/tcp.ts";
import { waitFor } from "../harness/wait.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

// Limits of a stock agent and of konnectivity-client with any server: Konnectivity's own fails in the same way.

const SIZE = 30_000_000;
const UNREAD_SECONDS = 12;

for (const server of ["culvert", "Konnectivity"] as const) {
  const skip = goMissing ?? (server === "Konnectivity" && !WHOLE_MATRICES && "in a full run only");

  test(`a half-close ends both directions of a stock agent's connection: ${server}'s server`, { skip }, async (t) => {
    await using target = await halfCloseTarget({ bytes: SIZE });
    using site = await siteOf(t, server, "http-connect", target);
    await using connection = await established(connectThrough(site.listener("uds"), target.address));
    connection.end();
    const { length } = await connection.readBytes(SIZE, 20_000);
    t.diagnostic(`${length} of ${SIZE} bytes came after the caller's end`);
    assert.ok(length < SIZE);
  });

  test(`konnectivity-client, unread for ${UNREAD_SECONDS} s, loses bytes: ${server}'s server`, {
    skip: skip || (!WHOLE_MATRICES && "in a full run only"),
  }, async (t) => {
    await using target = await sourceTarget({ bytes: SIZE });
    using site = await siteOf(t, server, "grpc", target);
    const command = ["-target", `unix:${site.uds}`, "unread", target.address, String(UNREAD_SECONDS)];
    const { stdout } = await promisify(execFile)(await goPeerBinary("go-konnectivity-client"), command);
    const [, read = "", , halfCloses] = stdout.trim().split(" ");
    t.diagnostic(`${read} of ${SIZE} bytes were read; it can half-close: ${halfCloses}`);
    assert.ok(Number(read) < SIZE, stdout);
    assert.equal(halfCloses, "false");
  });
}

/** With a server and a stock agent of it, until the test is over. */
async function siteOf(
  t: TestContext,
  server: "culvert" | "Konnectivity",
  mode: "grpc" | "http-connect",
  target: TcpTarget,
): Promise<Site> {
  const site = await createSite();
  const running = server === "culvert" ? await site.startServer() : await konnectivityServer(site, mode);
  const { path } = site.dir;
  const agent = await KonnectivityAgent.start(path, { port: site.agentPort, flags: certificateFlags(path) });
  t.after(async () => {
    agent[Symbol.dispose]();
    await running.kill();
  });
  // Konnectivity's server is ready when it has an agent. culvert's takes a CONNECT whatever the mode.
  if (server === "Konnectivity") await running.waitForHealth(`http://127.0.0.1:${site.healthPort}/readyz`);
  else await waitFor(() => isAnswered(site.listener("uds"), target.address));
  return site;
}
