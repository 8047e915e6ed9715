import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { pki } from "../testing/server.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { PeerLink, peerLog } from "./peer-link.ts";
import type { PeerTrust } from "./peer-trust.ts";
import { Fleet, linesOf, peerLeaf } from "./testing/fleet.ts";

function world() {
  const written: unknown[] = [];
  const line = ({ peer }: { readonly peer?: unknown }): void => void written.push(peer);
  const log = { debug: () => {}, info: line, warn: line, error: line } as unknown as Logger;
  const throttled = new ThrottledLog(log);
  return { written, warn: (peer: string, message: string) => peerLog(throttled, peer, "10.0.0.2:1")("warn", message) };
}

test("a server that comes and goes all the time hides the lines of no other", () => {
  const { written, warn } = world();
  for (let times = 0; times < 500; times++) warn("srv-2", "peer link lost");
  warn("srv-3", "peer link lost");
  assert.deepEqual([written.length, written.at(-1)], [21, "srv-3"]);
});

test("servers that a forged directory names without end have a bounded number of lines", () => {
  const { written, warn } = world();
  for (let number = 0; number < 20_000; number++) warn(`srv-${number}`, "peer not reached");
  assert.ok(written.length <= 1_010, `${written.length} lines`);
});

test("a peer whose certificate was not seen is not used, and the connection to it is closed", async () => {
  await using fleet = new Fleet();
  const far = await fleet.start("srv-2", { linkGraceMs: 0 });
  const { cert, key } = await pki.ca.issue(peerLeaf("srv-1"));
  const tls = { cert, key, ca: pki.ca.cert, checkServerIdentity: () => undefined };
  const context = contextOf({ serverId: "srv-1", keepaliveMs: 20_000, agentAckTimeoutMs: 5_000 });
  const memory = context.pool.share("peers");
  const own = { trust: { dialTls: () => tls } as unknown as PeerTrust, instance: "test", memory };
  const location = { serverId: "srv-2", address: `127.0.0.1:${far.addresses.peers?.port}` };
  await assert.rejects(
    PeerLink.dial(location, own, context, () => {}),
    /has shown no certificate/,
  );
  await until(() => linesOf(far, "peer link lost").length === 1);
});
