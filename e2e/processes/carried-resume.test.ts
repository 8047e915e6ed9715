import assert from "node:assert/strict";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { startRelay } from "../harness/faults.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { PeerFiles } from "../harness/peer-files.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { SiteServer } from "../harness/site-server.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { freePort } from "../harness/targets/absent.ts";
import { encodeTransfer, play, type Transfer, transferTarget } from "../harness/transfer.ts";
import { waitFor, within } from "../harness/wait.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const MEGABYTE = 1_000_000;
/** Each way; more than all windows, replay buffers and sockets on the path together. */
const BYTES = 16 * MEGABYTE;
/** The path of the agent carries no more a second each way: what is done to it happens in the middle. */
const LINE = { bytesPerSecond: 8 * MEGABYTE, queueBytes: 256 * 1024, rttMs: 0 };
const SOON_MS = 10_000;

test("a resume that a balancer leads to another server is carried home, and no byte of an open stream is lost, though the carrying server is killed", {
  skip: missingProgram("nats-server"),
}, async () => {
  using site = await createSite();
  await using nats = await NatsServers.start({ dir: site.dir.path });
  await using target = await transferTarget();
  const peers = await PeerFiles.create(site.dir);
  const member = async (name: string) =>
    SiteServer.reserve(site, name, await peers.flagsOf(name, { peerPort: await freePort() }, nats.urls()));
  const [a, b] = await Promise.all([member("a"), member("b")]);
  const both = [a.start(), b.start()] as const;
  await using owner = await both[0];
  await using other = await both[1];
  await Promise.all([owner, other].map((server) => server.waitForLog("directory connected")));
  const at = ({ agentPort: port }: SiteServer) => ({ host: "127.0.0.1", port });
  await using balancer = await startRelay(at(a));
  await using line = await startSlowLine(balancer, LINE);
  await using agent = await site.startAgent({}, { agentPort: line.port });

  const transfer: Transfer = { seed: 1, closing: "both at once", bytesUp: BYTES, bytesDown: BYTES };
  const caller = await established(connectThrough({ path: a.uds }, target.address));
  await caller.send(encodeTransfer(transfer));
  const [sent, received] = [play(caller.socket, "caller", transfer), target.outcome(transfer.seed)];
  const passes = async (bytes: number, server: ManagedProcess, line: string) => {
    await server.waitForLog(line, SOON_MS);
    const { forward, backward } = balancer.bytes;
    const passed = () => Math.min(balancer.bytes.forward - forward, balancer.bytes.backward - backward) >= bytes;
    await waitFor(passed, { deadlineMs: SOON_MS, what: `${bytes} bytes each way` });
  };
  await passes(2 * MEGABYTE, agent, "uplink connected");

  balancer.leadTo(at(b));
  balancer.cut("rst");
  await passes(2 * MEGABYTE, other, "resume carried to the server that has the link");
  other.signal("SIGKILL");
  await agent.waitForLog("uplink not resumed", SOON_MS);
  balancer.leadTo(at(a));
  await within(Promise.all([sent, received]), 60_000, "every byte, and the clean end");

  const ways = owner.log.filter((line) => /"tunnel (?:resumed|moved)"/.test(line));
  assert.deepEqual(
    ways.map((line) => /carried by server/.test(line)),
    [true, false],
  );
  assert.ok(!agent.log.some((line) => line.includes("uplink lost")), "it was the same link all the time");
});
