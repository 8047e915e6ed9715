import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CloseCode } from "../../shared/wire/handshake.ts";
import { connection, ResumingAgent, refusalOf } from "../testing/resuming-agent.ts";
import { type agentOf, HELLO, pki, type TestServer } from "../testing/server.ts";
import { ask, Fleet, linesOf } from "./testing/fleet.ts";
import { peerPath } from "./testing/peer-path.ts";

/** No test waits for this grace. */
const LASTING = { linkGraceMs: 600_000, drainTimeoutMs: 50 };

test("streams over a server end at once when its port refuses connections, or another process answers there", async () => {
  for (const how of ["refused", "replaced"] as const) {
    using path = await peerPath();
    await using fleet = new Fleet();
    const { near, far } = await fleet.pair(LASTING, { ...LASTING, peerAddress: path.peerAddress });
    path.leadTo(far);
    const open = await ask(near);
    assert.match(open.status, /^HTTP\/1\.1 200 /);
    if (how === "refused") path.refuse();
    else {
      await using next = await new Fleet().start("srv-2", LASTING);
      path.leadTo(next);
      path.cut();
      await until(() => open.socket.destroyed);
    }
    await until(() => open.socket.destroyed);
    await until(() => linesOf(near, "connection closed").length === 1);
    const [line] = linesOf(near, "connection closed");
    assert.deepEqual([line?.["outcome"], line?.["endedBy"]], ["peer_lost", "server"], how);
    const reason = String(linesOf(near, "peer link lost")[0]?.["reason"]);
    assert.match(reason, how === "refused" ? /^its process has ended: / : /has no such link any more/);
    far.destroy(new Error("the test is over"));
  }
});

test("a carried connection ends when the owner cannot be dialled, a cut costs it nothing, and no stream is lost", async () => {
  using path = await peerPath();
  await using fleet = new Fleet();
  const owner = await fleet.start("srv-1", { ...LASTING, peerAddress: path.peerAddress });
  path.leadTo(owner);
  const other = await fleet.start("srv-2", { ...LASTING, agentAckTimeoutMs: 1_000 });
  const agent = await ResumingAgent.start(owner);
  const say = await connection(owner);
  await say("before");
  await agent.resume(HELLO, pki.agent, other);
  await say("carried");

  path.cut();
  await until(() => linesOf(other, "peer link resumed").length === 1);
  await say("carried on");
  assert.equal(linesOf(other, "carried connection ended").length, 0);

  path.silence();
  await until(() => agent.link.suspended);
  const [ended] = linesOf(other, "carried connection ended");
  assert.match(String(ended?.["reason"]), /^server "srv-1" cannot be reached: /);
  assert.equal(await refusalOf(other, { ...HELLO, resume: agent.words() }), CloseCode.foreignLink);
  path.leadTo(owner);
  path.cut();
  await until(() => linesOf(other, "peer link resumed").length === 2);
  await agent.resume(HELLO, pki.agent, other);
  await say("carried again");

  path.refuse();
  await until(() => agent.link.suspended);
  assert.equal(linesOf(other, "peer link lost").length, 1);
  agent.session.destroy();
});

test("why a stream ends at the other server is in the caller's line, too: drained, agent lost, or reset by the target", async () => {
  const end = async (act: (far: TestServer, agent: Awaited<ReturnType<typeof agentOf>>) => unknown) => {
    await using fleet = new Fleet();
    const { near, far, agent } = await fleet.pair({}, { drainTimeoutMs: 100 });
    const open = await ask(near);
    act(far, agent);
    await until(() => open.socket.destroyed);
    await until(() => linesOf(near, "connection closed").length === 1);
    await until(() => linesOf(far, "connection of a peer closed").length === 1);
    const [mine] = linesOf(near, "connection closed");
    const [theirs] = linesOf(far, "connection of a peer closed");
    return [mine?.["outcome"], theirs?.["outcome"], mine?.["endedBy"], mine?.["reason"]];
  };
  assert.deepEqual(await end((far) => far.close()), [
    ...["draining", "draining", "server"],
    'server "srv-2" has shut down, and this was still open when its --drain-timeout was over',
  ]);
  assert.deepEqual(await end((_far, agent) => agent.link.destroy(new Error("killed by the test"))), [
    "agent_lost",
    "agent_lost",
    "agent",
    'server "srv-2" has lost the connection to the agent',
  ]);
  assert.deepEqual(await end((_far, agent) => agent.streams[0]?.reset()), [
    "ok",
    "ok",
    "target",
    "the peer reset the stream",
  ]);
});
