import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import type { Hello } from "../shared/link/control.ts";
import { dialAgain } from "../shared/link/dial.ts";
import { LinkKey } from "../shared/link/proof.ts";
import type { CertificateAndKey } from "../shared/pki/certificates.ts";
import { CloseCode } from "../shared/wire/handshake.ts";
import { PlayedAgent } from "./testing/played-agent.ts";
import { connection, countsResume, dial, echo, ResumingAgent, refusalOf } from "./testing/resuming-agent.ts";
import { dialOptions, HELLO, pki, start } from "./testing/server.ts";

/** Connections that a test leaves open keep its server for this long. */
const BRIEF = { linkGraceMs: 60_000, drainTimeoutMs: 50 };

const RESTARTED = "the agent was restarted";

test("a resume that disagrees in one thing is refused with a code of its own, and the real link is unharmed", async () => {
  await using server = await start(BRIEF);
  const agent = await ResumingAgent.start(server);
  const say = await connection(server);
  await say("before");
  const stale = agent.words();
  const used = agent.words();
  await dialAgain(dialOptions(server, { ...HELLO, resume: used }));
  await agent.resume();
  await say("and resumed");
  const other = await pki.ca.issue({ cn: "another-agent", usage: "client" });
  const { unknownLink, foreignLink, badProof, linkOfAnother, badOffset } = CloseCode;
  const table: [string, Hello, number, string, CertificateAndKey?][] = [
    ["another key", { ...HELLO, resume: agent.words({}, LinkKey.random()) }, badProof, "bad_proof"],
    ["a stale counter", { ...HELLO, resume: stale }, badProof, "bad_proof"],
    ["a used counter", { ...HELLO, resume: used }, badProof, "bad_proof"],
    ["another certificate", { ...HELLO, resume: agent.words() }, linkOfAnother, "link_of_another", other],
    ["another process", { ...HELLO, instance: "2", resume: agent.words() }, linkOfAnother, "link_of_another"],
    ["another agent id", { ...HELLO, agentId: "b", resume: agent.words() }, linkOfAnother, "link_of_another"],
    ["ahead of what was sent", { ...HELLO, resume: agent.words({ received: 1 << 30 }) }, badOffset, "bad_offset"],
    ["behind what was freed", { ...HELLO, resume: agent.words({ received: 0 }) }, badOffset, "bad_offset"],
    ["a link that is over", { ...HELLO, resume: agent.words({ link: "srv-1/gone" }) }, unknownLink, "unknown_link"],
    ["another server's link", { ...HELLO, resume: agent.words({ link: "srv-2/x" }) }, foreignLink, "foreign_link"],
  ];
  for (const [what, hello, code, result, by] of table) {
    assert.equal(await refusalOf(server, hello, by), code, what);
    assert.ok(await countsResume(server, result, "unknown"), what);
    await say(`still here: ${what}`);
  }
  assert.ok(
    server.lines.every((line) => !JSON.stringify(line).includes(agent.key.text)),
    "no key in the log",
  );
  agent.carrier.destroy();
  await until(() => server.lines.some(({ msg }) => msg === "tunnel suspended"));
  assert.equal(await refusalOf(server, { ...HELLO, resume: stale }), badProof);
  await agent.resume();
  await say("and resumed once more");
});

test("a link that is refused again and again is one warning, other links have theirs, and each time is counted", async () => {
  await using server = await start(BRIEF);
  const agent = await ResumingAgent.start(server);
  const resume = agent.words({ link: `${agent.link.id}-gone` });
  const warnings = () => server.lines.filter(({ msg, level }) => msg === "resume refused" && level === "warn").length;
  for (let time = 0; time < 5; time++) {
    assert.equal(await refusalOf(server, { ...HELLO, resume }), CloseCode.unknownLink);
  }
  assert.equal(warnings(), 1);
  for (let other = 0; other < 15; other++)
    await refusalOf(server, { ...HELLO, resume: { ...resume, link: `srv-1/${other}` } });
  assert.equal(warnings(), 16, "each of them has its own");
  assert.match(await server.metrics.registry.metrics(), /result="unknown_link",cause="unknown"\} 20$/m);
  // Every agent asks for its old link after a restart of its server: an operator looks for others.
  const status = await (await fetch(`http://127.0.0.1:${server.addresses.admin?.port}/status`)).text();
  assert.match(status, /"refusals":/);
  assert.doesNotMatch(status, /no such link/);
});

test("two resumes at once leave the link unharmed, and a hello that arrives twice is accepted once", async () => {
  await using server = await start(BRIEF);
  const agent = await ResumingAgent.start(server);
  const say = await connection(server);
  agent.link.acks.hold();
  const twice = () => dialAgain(dialOptions(server, { ...HELLO, resume }));
  const resume = agent.words();
  const [first, second] = await Promise.allSettled([twice(), twice()]);
  assert.deepEqual([first.status, second.status].sort(), ["fulfilled", "rejected"]);
  const third = await dialAgain(dialOptions(server, { ...HELLO, resume: agent.words() }));
  for (const each of [first, second]) if (each.status === "fulfilled") each.value.carrier.destroy();
  third.carrier.destroy();
  await agent.resume();
  await say("once more");
});

test("a resume is taken while the server drains, a new tunnel is not", async () => {
  const server = await start({ linkGraceMs: 60_000, drainTimeoutMs: 60_000 });
  const agent = await ResumingAgent.start(server);
  const say = await connection(server);
  const closing = server.close();
  agent.carrier.destroy();
  await until(() => server.lines.some(({ msg }) => msg === "tunnel suspended"));
  assert.equal(await refusalOf(server, { ...HELLO, agentId: "new" }), CloseCode.draining);
  assert.equal(server.lines.find(({ msg }) => msg === "agent refused")?.level, "info");
  await agent.resume();
  await say("to the end");
  agent.session.destroy();
  server.destroy(new Error("the test is over"));
  await closing;
});

test("a suspended tunnel ends at once when a later process of the agent comes, and so does one that is lost after that", async () => {
  await using server = await start({ linkGraceMs: 60_000, drainTimeoutMs: 60_000 });
  const lost = () => server.lines.filter(({ msg, reason }) => msg === "tunnel lost" && reason === RESTARTED).length;
  const first = await ResumingAgent.start(server);
  await connection(server);
  first.carrier.destroy();
  await until(() => server.lines.some(({ msg }) => msg === "tunnel suspended"));
  const second = await dial(server, { ...HELLO, instance: "2" });
  await until(() => lost() === 1);
  const { session } = new PlayedAgent(second, echo);
  await connection(server);
  const third = await dial(server, { ...HELLO, instance: "3" });
  second.carrier.destroy();
  await until(() => lost() === 2);
  session.destroy();
  third.carrier.destroy();
  server.destroy(new Error("the test is over"));
});

test("a tunnel ends with its agent's certificate; one whose agent was asked, and has come with another, goes on", async () => {
  await using server = await start(BRIEF);
  const notAfter = new Date(Date.now() + 12_000);
  const brief = await pki.ca.issue({ cn: "konnectivity-agent", usage: "client", notAfter });
  const renewing = await ResumingAgent.start(server, HELLO, brief);
  const echoed = await connection(server);
  await echoed("before");
  await ResumingAgent.start(server, { ...HELLO, agentId: "late" }, brief);
  const asked: string[] = [];
  renewing.link.watch({
    onControl: (message) => {
      if (message.type === "rotate") asked.push(message.reason);
    },
  });
  await until(() => asked.length > 0);
  assert.match(asked[0] ?? "", /^the agent's certificate expires on \d{4}-/);
  await renewing.resume();
  const lost = () => server.lines.find(({ msg }) => msg === "tunnel lost");
  await until(() => lost() !== undefined);
  assert.ok(Date.now() >= Math.floor(notAfter.getTime() / 1_000) * 1_000, "not before its end");
  assert.match(
    String(lost()?.["reason"]),
    /^the agent's certificate expired on \d{4}-.*, and its agent has not come back/,
  );
  assert.deepEqual([lost()?.["agent"], server.tunnels.clusters.get("default")?.tunnels().size], ["late", 1]);
  await echoed("after");
});
