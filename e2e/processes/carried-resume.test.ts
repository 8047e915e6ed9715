import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { Authority } from "../../shared/pki/certificates.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { startRelay } from "../harness/faults.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { encodeTransfer, play, type Transfer, transferTarget } from "../harness/transfer.ts";
import { waitFor, within } from "../harness/wait.ts";

const MEGABYTE = 1_000_000;
/** Each way; more than all windows, replay buffers and sockets on the path together. */
const BYTES = 16 * MEGABYTE;
/** The path of the agent carries so many bytes a second each way: what is done to it happens in the middle. */
const BYTES_PER_S = 8 * MEGABYTE;
const SOON_MS = 10_000;

/** A server of the fleet, beside the one that a `Site` describes. */
interface Member {
  readonly agentPort: number;
  readonly uds: string;
  start(): Promise<ManagedProcess>;
}

async function member(site: Site, name: string, peers: Authority, directory: string): Promise<Member> {
  const [agentPort, healthPort, serverPort, peerPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const uds = site.dir.file(`${name}.sock`);
  const pair = await peers.issue({ cn: name, o: ["culvert-servers"], usage: "both" });
  writeFileSync(site.dir.file(`${name}.crt`), pair.cert);
  writeFileSync(site.dir.file(`${name}.key`), pair.key);
  const options = {
    ...{ serverId: name, udsName: uds, agentPort, healthPort, serverPort, directory, peerPort },
    ...{ peerAddress: "127.0.0.1", peerBindAddress: "127.0.0.1", peerIdentities: "O=culvert-servers" },
    ...{ peerCert: site.dir.file(`${name}.crt`), peerKey: site.dir.file(`${name}.key`) },
    peerCaCert: site.dir.file("peers.crt"),
  };
  return { agentPort, uds, start: () => site.startServer(options) };
}

test("a resume that a balancer leads to another server is carried home, and no byte of an open stream is lost, though the carrying server is killed", async () => {
  using site = await createSite();
  await using nats = await NatsServers.start({ dir: site.dir.path });
  await using target = await transferTarget();
  const peers = await Authority.create("peers");
  writeFileSync(site.dir.file("peers.crt"), peers.cert);
  const [a, b] = await Promise.all(["a", "b"].map((name) => member(site, name, peers, nats.urls().join())));
  assert.ok(a !== undefined && b !== undefined);
  const both = [a.start(), b.start()] as const;
  await using owner = await both[0];
  await using other = await both[1];
  await Promise.all([owner, other].map((server) => server.waitForLog("directory connected")));
  const at = ({ agentPort: port }: Member) => ({ host: "127.0.0.1", port });
  await using balancer = await startRelay(at(a));
  await using agent = await site.startAgent({}, { agentPort: balancer.port });

  balancer.throttle(BYTES_PER_S);
  const transfer: Transfer = { seed: 1, closing: "both at once", bytesUp: BYTES, bytesDown: BYTES };
  const caller = await connectThrough({ path: a.uds }, target.address);
  assert.equal(caller.status, 200, caller.reason);
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
  other.kill("SIGKILL");
  await agent.waitForLog("uplink not resumed", SOON_MS);
  balancer.leadTo(at(a));
  await within(Promise.all([sent, received]), 60_000, "every byte, and the end in order");

  const ways = owner.log.filter((line) => /"tunnel (?:resumed|moved)"/.test(line));
  assert.deepEqual(
    ways.map((line) => /carried by server/.test(line)),
    [true, false],
  );
  assert.ok(!agent.log.some((line) => line.includes("uplink lost")), "it was the same link all the time");
});
