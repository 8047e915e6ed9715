import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { EchoCrowd } from "../harness/echo-crowd.ts";
import { certificateFlags, KonnectivityAgent } from "../harness/konnectivity-agent.ts";
import { captureLog } from "../harness/log-lines.ts";
import { sourceTarget } from "../harness/targets/plain.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";
import { goMissing } from "../interop/go-peer.ts";

// Connections of Konnectivity's own agent that take less than they are sent.

const skip = goMissing;
const OTHERS = 100;
const STOPPED_MS = WHOLE_MATRICES ? 30_000 : 6_000;

const { log, lines } = captureLog();
const world = await startWorld({ log, agents: 0, targets: ["echo"], server: { agentWaitMs: 15_000 } });
after(() => world[Symbol.asyncDispose]());

async function startAgent(agentId: string): Promise<KonnectivityAgent> {
  const port = world.server.addresses.agents?.port ?? 0;
  const opened = lines.filter(({ msg }) => msg === "tunnel opened").length;
  const agent = await KonnectivityAgent.start(world.dir.path, {
    port,
    flags: [...certificateFlags(world.dir.path), `--agent-id=${agentId}`, "--v=0"],
  });
  await waitFor(() => lines.filter(({ msg }) => msg === "tunnel opened").length > opened);
  return agent;
}

test("a caller that reads less than the agent sends gets more than may be held for it", { skip }, async () => {
  using agent = await startAgent("slow");
  assert.ok(agent);
  const size = 200 * 1024 * 1024;
  await using source = await sourceTarget({ bytes: size });
  await using slow = await world.connect(source.address);
  let most = 0;
  for (let read = 0; read < size; ) {
    const piece = await slow.readBytes(Math.min(512 * 1024, size - read), 60_000);
    assert.ok(piece.length > 0, `it has ended after ${read} bytes`);
    read += piece.length;
    most = Math.max(most, ...[...world.server.tunnels.tunnels()].map(({ bufferedBytes }) => bufferedBytes));
    await sleep(20);
  }
  assert.ok(most < 64 * 1024 * 1024, `${most} bytes were held`);
});

test("a caller that reads nothing of endless bytes is ended, and none of 100 others is lost", { skip }, async () => {
  using agent = await startAgent("endless");
  assert.ok(agent);
  await using others = await EchoCrowd.open(OTHERS, () => world.connect("echo"));
  await using source = await sourceTarget();
  await using stopped = await world.connect(source.address);
  stopped.socket.pause();
  const echoes = others.echoes(STOPPED_MS);
  await waitFor(() => lines.some(({ outcome }) => outcome === "stalled"));
  for (const each of await echoes) assert.ok(each.length > 0);
});

test("a target that takes nothing stops its agent: status says so, and the dials go to another one", {
  skip,
}, async () => {
  using agent = await startAgent("standing");
  assert.ok(agent);
  await using sink = await tcpTarget((socket) => socket.pause());
  await using upload = await world.connect(sink.address);
  const filling = setInterval(() => upload.socket.writableNeedDrain || upload.socket.write(Buffer.alloc(65_536)), 1);
  try {
    const tunnelOf = (agentId: string) =>
      [...world.server.tunnels.tunnels()].find((each) => each.agent.agentId === agentId);
    await waitFor(() => tunnelOf("standing")?.standsStill, { deadlineMs: 30_000 });
    const refused = await world.connect("echo");
    assert.equal(refused.status, 504);
    assert.match(refused.reason, /stands still/);
    using other = await startAgent("moving");
    assert.ok(other);
    for (let times = 0; times < 5; times++) {
      await using connection = await world.connect("echo");
      await connection.send("hello");
      assert.equal(await connection.read(), "hello");
    }
    assert.equal(tunnelOf("moving")?.standsStill, false);
  } finally {
    clearInterval(filling);
  }
});
