import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CloseCode } from "../../shared/wire/handshake.ts";
import { connection, ResumingAgent, refusalOf } from "../testing/resuming-agent.ts";
import { HELLO, pki } from "../testing/server.ts";
import { Fleet, linesOf } from "./testing/fleet.ts";

/** A server gives the owner of a link a share of this grace, which a busy machine may need. */
const BRIEF = { linkGraceMs: 60_000, drainTimeoutMs: 50 };
const LASTING = { linkGraceMs: 60_000, drainTimeoutMs: 60_000 };

test("a resume is carried over the link between two servers, and again when that server has ended", async () => {
  await using fleet = new Fleet();
  const owner = await fleet.start("srv-1", BRIEF);
  const other = await fleet.start("srv-2", BRIEF);
  const agent = await ResumingAgent.start(owner);
  const say = await connection(owner);
  await say("before");
  agent.carrier.destroy();
  await until(() => agent.link.suspended);
  await agent.resume(HELLO, pki.agent, other);
  await say("carried");
  await say("x".repeat(200_000));
  const [resumed] = linesOf(owner, "tunnel resumed");
  assert.match(String(resumed?.["remote"]), /^127\.0\.0\.1:\d+ \(carried by server "srv-2"\)$/);

  other.destroy(new Error("killed by the test"));
  await until(() => agent.link.suspended);
  const third = await fleet.start("srv-3", BRIEF);
  await agent.resume(HELLO, pki.agent, third);
  await say("carried by another one");
  await agent.resume();
  await say("at home");
  assert.equal(third.tunnels.clusters.get("default")?.tunnels().size, 0);
});

test("where the directory knows no such server, or a wrong place for it, the agent is answered as ever", async () => {
  await using fleet = new Fleet();
  const owner = await fleet.start("srv-1", BRIEF);
  const other = await fleet.start("srv-2", BRIEF);
  const agent = await ResumingAgent.start(owner);
  const reason = async (forged: NonNullable<typeof fleet.hub.forged>, more: object = {}) => {
    fleet.hub.forged = forged;
    assert.equal(await refusalOf(other, { ...HELLO, resume: { ...agent.words(), ...more } }), CloseCode.foreignLink);
    return String(linesOf(other, "resume not carried to the server that has the link").at(-1)?.["reason"]);
  };
  const elsewhere = (serverId: string, port = 1) => ({ serverId, address: `127.0.0.1:${port}` });
  const gone = { link: "srv-8/1" };
  assert.match(await reason(() => elsewhere("srv-9"), gone), /the directory has no server "srv-8"/);
  assert.match(await reason(() => elsewhere("srv-1")), /server "srv-1" cannot be reached/);
  const agents = owner.addresses.agents?.port;
  assert.match(await reason(() => elsewhere("srv-1", agents)), /server "srv-1" cannot be reached/);
  assert.deepEqual(
    linesOf(other, "peer not reached").map(({ remote }) => remote),
    ["127.0.0.1:1", `127.0.0.1:${agents}`],
  );
  fleet.hub.forged = undefined;
  await agent.resume(HELLO, pki.agent, other);
});

test("a server that drains takes resumes that others carry to it, and carried connections do not hold up its end", async () => {
  await using fleet = new Fleet();
  const owner = await fleet.start("srv-1", LASTING);
  const other = await fleet.start("srv-2", LASTING);
  const agent = await ResumingAgent.start(owner);
  const say = await connection(owner);
  await say("before");
  const closing = owner.close();
  agent.carrier.destroy();
  await until(() => linesOf(owner, "tunnel suspended").length === 1);
  await agent.resume(HELLO, pki.agent, other);
  await say("carried to a server that drains");
  await agent.session.close(0);
  await closing;

  // The other end: a server that carries ends, too.
  const next = await fleet.start("srv-3", LASTING);
  const second = await ResumingAgent.start(next);
  const more = await connection(next);
  await second.resume(HELLO, pki.agent, other);
  await more("carried");
  await other.close();
  await until(() => second.link.suspended);
  await second.resume();
  await more("at home");
  second.session.destroy();
});
