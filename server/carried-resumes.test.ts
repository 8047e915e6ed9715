import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import type { Hello } from "../shared/link/control.ts";
import { dialAgain, dialCarrier, dialOuter, OUTER_HELLO } from "../shared/link/dial.ts";
import { parseInnerReply } from "../shared/link/inner-pipe.ts";
import { dialInner, UntrustedLink } from "../shared/link/inner-tls.ts";
import { LinkKey } from "../shared/link/proof.ts";
import type { CertificateAndKey } from "../shared/pki/certificates.ts";
import { CloseCode, LinkRefused } from "../shared/wire/handshake.ts";
import { Session } from "../shared/yamux/session.ts";
import type { Stream } from "../shared/yamux/stream.ts";
import type { ServerOptions } from "./options/options.ts";
import { connection, countsResume, dial, echo, NOBODY, ResumingAgent, refusalOf } from "./testing/resuming-agent.ts";
import { agentOf, dialOptions, HELLO, pki, start, type TestServer } from "./testing/server.ts";
import type { CarriedFacts, LinkOwners } from "./tunnels/links.ts";

const BRIEF = { linkGraceMs: 60_000, drainTimeoutMs: 50 };

/** Two servers: `b` carries what it is asked for to `a`, and a test may change what it says of it. */
async function twoServers(options: { a?: Partial<ServerOptions>; b?: Partial<ServerOptions> } = {}) {
  const asked: string[] = [];
  const paidBy: unknown[] = [];
  const streams: Duplex[] = [];
  const change: { facts?: Partial<CarriedFacts>; open?: LinkOwners["open"] } = {};
  const a = await start({ ...BRIEF, serverId: "srv-a", ...options.a }, { owners: NOBODY });
  const open: LinkOwners["open"] = async (serverId, facts, signal, memory) => {
    asked.push(serverId);
    paidBy.push(memory);
    if (change.open !== undefined) return await change.open(serverId, facts, signal, memory);
    const [near, far] = duplexPair();
    streams.push(near);
    a.takeCarried(far, { ...facts, ...change.facts }, "srv-b");
    return near;
  };
  const b = await start({ ...BRIEF, serverId: "srv-b", ...options.b }, { owners: { open } });
  return {
    ...{ a, b, asked, paidBy, streams, change },
    [Symbol.asyncDispose]: async () => {
      await Promise.all([a.close(), b.close()]);
    },
  };
}

async function openNow(server: TestServer, direction: string): Promise<number> {
  const line = new RegExp(`^culvert_server_carried_connections\\{direction="${direction}"\\} (\\d+)`, "m");
  return Number(line.exec(await server.metrics.registry.metrics())?.[1]);
}

test("a resume that reaches another server goes on at the link's own, and comes home by the next one", async () => {
  await using two = await twoServers();
  const { a, b } = two;
  const agent = await ResumingAgent.start(a);
  const say = await connection(a);
  await say("before");
  agent.carrier.destroy();
  await until(() => a.lines.some(({ msg }) => msg === "tunnel suspended"));
  await agent.resume(HELLO, pki.agent, b);
  await say("carried");
  const resumed = a.lines.find(({ msg }) => msg === "tunnel resumed");
  assert.match(String(resumed?.["remote"]), /^127\.0\.0\.1:\d+ \(carried by server "srv-b"\)$/);
  const carried = b.lines.find(({ msg }) => msg === "resume carried to the server that has the link");
  const facts = ["cluster", "identity", "link", "server"].map((name) => carried?.[name]);
  assert.deepEqual(facts, ["default", "CN=konnectivity-agent", agent.link.id, "srv-a"]);
  assert.ok(await countsResume(b, "carried_to_owner"));
  assert.deepEqual([await openNow(b, "to_owner"), await openNow(a, "from_peer")], [1, 1]);
  assert.equal(b.tunnels.clusters.get("default")?.tunnels().size, 0, "it has no tunnel of its own");
  assert.equal(two.paidBy[0], b.tunnels.clusters.get("default")?.memory);

  two.streams[0]?.destroy(new Error("the other server was killed"));
  await until(() => agent.link.suspended);
  await agent.resume(HELLO, pki.agent, b);
  await say("carried again");
  await agent.resume(); // planned: the carried one is still up
  await say("at home");
  await until(() => b.lines.filter(({ msg }) => msg === "carried connection ended").length === 2);
  await until(async () => (await openNow(b, "to_owner")) + (await openNow(a, "from_peer")) === 0);
});

test("what the owner refuses the agent reads with the owner's code, and the link is as it was", async () => {
  await using two = await twoServers();
  const { a, b, change } = two;
  const agent = await ResumingAgent.start(a);
  const say = await connection(a);
  await agent.resume();
  await say("and the first bytes");
  const other = await pki.ca.issue({ cn: "another-agent", usage: "client" });
  const used = agent.words();
  await agent.resume();
  const { badHello, badProof, linkOfAnother, badOffset, unknownLink } = CloseCode;
  const table: [string, Hello, number, CertificateAndKey?][] = [
    ["another key", { ...HELLO, resume: agent.words({}, LinkKey.random()) }, badProof],
    ["a used counter", { ...HELLO, resume: used }, badProof],
    ["another certificate", { ...HELLO, resume: agent.words() }, linkOfAnother, other],
    ["another process", { ...HELLO, instance: "2", resume: agent.words() }, linkOfAnother],
    ["an offset", { ...HELLO, resume: agent.words({ received: 1 << 30 }) }, badOffset],
    ["a link that is over", { ...HELLO, resume: agent.words({ link: "srv-a/gone" }) }, unknownLink],
  ];
  for (const [what, hello, code, by] of table) {
    assert.equal(await refusalOf(b, hello, by), code, what);
    await say(`still here: ${what}`);
  }
  // The header leads to the owner, and the hello asks for something else.
  const named = { ...dialOptions(b, { ...HELLO, resume: agent.words() }), hello: () => ({ ...HELLO, agentId: "new" }) };
  await assert.rejects(dialCarrier(named), (error) => error instanceof LinkRefused && error.closeCode === badHello);
  assert.equal(a.tunnels.clusters.get("default")?.tunnels().size, 1, "no link begins on a carried connection");

  // The certificate that the other server passes on is verified again.
  const stranger = await pki.other.issue({ cn: "konnectivity-agent", usage: "client" });
  const expired = await pki.ca.issue({ cn: "konnectivity-agent", usage: "client", notAfter: new Date(Date.now() - 1) });
  const caller = await pki.ca.issue({ cn: "konnectivity-client", usage: "client" });
  const certificates: [string, Buffer[], number, RegExp][] = [
    ["none", [], 401, /shown no client certificate to the server that carries/],
    ["another CA", [der(stranger)], 401, /not signed by a CA that is accepted here/],
    ["expired", [der(expired)], 401, /has expired, or is not valid yet/],
    ["of a caller", [der(caller)], 403, /is a caller's, not an agent's/],
  ];
  for (const [what, chain, status, sentence] of certificates) {
    change.facts = { chain };
    const refused = dial(b, { ...HELLO, resume: agent.words() });
    await assert.rejects(refused, (error) => error instanceof LinkRefused && error.status === status, what);
    await assert.rejects(refused, sentence, what);
    await say(`still here: ${what}`);
  }
});

function der({ cert }: CertificateAndKey): Buffer {
  return Buffer.from(cert.replace(/-----[^-]+-----/g, ""), "base64");
}

test("where the owner cannot be reached, or nothing names another server's link, the server answers itself", async () => {
  await using two = await twoServers({ b: { linkGraceMs: 600 } });
  const { b, asked, change } = two;
  const { foreignLink } = CloseCode;
  const { carrier, welcome } = await dial(two.a, HELLO);
  const prove = (link: string) => LinkKey.parse(welcome.key).prove({ link, received: 0 });
  const resume = prove(welcome.link);
  change.open = NOBODY.open;
  assert.equal(await refusalOf(b, { ...HELLO, resume }), foreignLink);
  assert.equal(
    b.lines.find(({ msg }) => String(msg).startsWith("resume not carried"))?.["reason"],
    "no server has this id",
  );
  assert.ok(await countsResume(b, "not_carried"));
  assert.ok(await countsResume(b, "foreign_link"));

  change.open = (_id, _facts, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  assert.equal(await refusalOf(b, { ...HELLO, resume }), foreignLink);
  const late = b.lines.filter(({ msg }) => String(msg).startsWith("resume not carried")).at(-1);
  assert.equal(late?.["reason"], "the server does not answer in time");
  assert.equal(asked.length, 2);

  change.open = () => assert.fail("nobody is to be asked");
  assert.equal(await refusalOf(b, { ...HELLO, resume: prove("srv-b/gone") }), CloseCode.unknownLink);
  for (const link of ["srv-c", "srv/c/d", "srv c/d", `${"x".repeat(129)}/d`]) {
    assert.equal(await refusalOf(b, { ...HELLO, resume: prove(link) }), foreignLink, link);
  }
  assert.equal(asked.length, 2);
  carrier.destroy();
});

test("a carried connection goes no further: no second hop, and no loop", async () => {
  await using two = await twoServers();
  const { a, b, asked, change } = two;
  const { carrier, welcome } = await dial(a, HELLO);
  const resume = LinkKey.parse(welcome.key).prove({ link: "srv-c/1", received: 0 });
  change.open = async (_id, facts) => {
    const [near, far] = duplexPair();
    a.takeCarried(far, facts, "srv-b"); // which is not the owner
    return near;
  };
  assert.equal(await refusalOf(b, { ...HELLO, resume }), CloseCode.foreignLink);
  assert.deepEqual(asked, ["srv-c"]);
  assert.equal(a.lines.filter(({ msg }) => String(msg).startsWith("resume not carried")).length, 0);
  carrier.destroy();
});

test("a server that drains carries nothing more, and one that has ended has let go of what it carried", async () => {
  await using two = await twoServers({ b: { drainTimeoutMs: 60_000 } });
  const { a, b, asked } = two;
  const agent = await ResumingAgent.start(a);
  const say = await connection(a);
  await agent.resume(HELLO, pki.agent, b);
  await say("carried");
  const kept = await agentOf(b); // a link of its own that is in use, so that its port stays open
  await (await connection(b))("in use");
  const closing = b.close();
  await until(() => [...b.tunnels.tunnels()].every(({ draining }) => draining));
  await say("still carried");
  assert.equal(await refusalOf(b, { ...HELLO, resume: agent.words() }), CloseCode.foreignLink);
  assert.equal(asked.length, 1);
  kept.session.destroy();
  await closing;
  await until(() => agent.link.suspended);
  await agent.resume();
  await say("at home");
});

test("a cluster has a limited number of carried connections to one owner, and a refused or ended one frees its place", async () => {
  await using two = await twoServers({ b: { maxAgents: 1, maxInnerHandshakes: 1 } });
  const { a, b, asked, streams } = two;
  const agents = [];
  for (const agentId of ["a", "b", "c", "d", "e"]) {
    const hello = { ...HELLO, agentId };
    agents.push({ hello, agent: await ResumingAgent.start(a, hello) });
  }
  for (const { hello, agent } of agents.slice(0, 4)) await agent.resume(hello, pki.agent, b);
  const [first, , , , fifth] = agents;
  const resume = { ...fifth?.hello, resume: fifth?.agent.words() } as Hello;
  assert.equal(await refusalOf(b, resume), CloseCode.foreignLink);
  assert.equal(asked.length, 4);
  streams[0]?.destroy();
  await until(() => first?.agent.link.suspended === true);
  await fifth?.agent.resume(fifth.hello, pki.agent, b);
  assert.equal(asked.length, 5);
});

test("a cluster has a limited number of connections that wait for an owner, however many owners they name", async () => {
  const bounds = { maxAgents: 1, maxInnerHandshakes: 1 };
  await using two = await twoServers({ b: bounds });
  const { a, b, asked, change } = two;
  const agent = await ResumingAgent.start(a);
  change.open = (_owner, _facts, signal) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  const link = (owner: string) => ({ ...HELLO, resume: agent.words({ link: `${owner}/1` }) });
  const waiting = ["srv-1", "srv-2"].map((owner) => refusalOf(b, link(owner)));
  await until(() => asked.length === 2);
  assert.equal(await refusalOf(b, link("srv-3")), CloseCode.foreignLink);
  assert.deepEqual(asked.toSorted(), ["srv-1", "srv-2"]);
  assert.deepEqual(await Promise.all(waiting), [CloseCode.foreignLink, CloseCode.foreignLink]);
  await Promise.all([refusalOf(b, link("srv-4")), until(() => asked.length === 3)]);
});

test("under inner TLS the proof decides at the owner, and the connection that renews a credential is carried as well", async () => {
  const innerTls = "auto";
  await using two = await twoServers({ a: { innerTls }, b: { innerTls } });
  const { a, b, asked } = two;
  const inside = await insideOf(a);
  const { link, key, pipe } = inside;
  pipe.sendMessage(HELLO);
  const welcome = parseInnerReply(await pipe.readMessage());
  assert.ok(welcome.type === "welcome");
  const { initialWindow, freshWindow = initialWindow } = welcome;
  link.assignId(welcome.link, 60_000);
  const handler = { onStream: (stream: Stream) => void echo(stream), onClosed: () => {} };
  const session = new Session("client", pipe, handler, { initialWindow, freshWindow });
  const say = await connection(a);
  await say("before");

  const again = async (by = key) => {
    link.acks.hold();
    const resume = by.prove({ link: link.id, received: link.received });
    const hello = () => ({ ...OUTER_HELLO, resume });
    const { carrier, resumed } = await dialAgain({ ...anonymous(b), hello, link: link.id });
    link.resume(carrier, "server", { peerReceived: resumed.received, named: resume.received });
    link.acks.now();
  };
  inside.carrier.destroy();
  await until(() => link.suspended);
  await assert.rejects(again(LinkKey.random()), /4453/);
  await again();
  await say("carried");

  const renewal = await insideOf(b, link.id);
  renewal.pipe.sendMessage({ ...HELLO, renews: link.id });
  assert.equal(parseInnerReply(await renewal.pipe.readMessage()).type, "renewed");
  const fresh = await insideOf(b, link.id);
  fresh.pipe.sendMessage({ ...HELLO, agentId: "new" });
  const answer = await fresh.pipe.readMessage();
  assert.throws(() => parseInnerReply(answer), /4400.*no new one begins on it/);
  assert.deepEqual(asked, ["srv-a", "srv-a", "srv-a", "srv-a"]);
  session.destroy();
});

/** The dial of an agent that shows nothing outside. */
function anonymous(server: TestServer) {
  return { ...dialOptions(server, HELLO), tls: { ca: pki.ca.cert } };
}

/** Inner TLS with the owner of the link, or for a new link with this server. */
async function insideOf(server: TestServer, link?: string) {
  const { carrier, remote } = await dialOuter({ ...anonymous(server), link });
  const outer = new UntrustedLink(remote, carrier, { replayBytes: 1 << 20 });
  const { signal } = new AbortController();
  const tls = { ca: pki.ca.cert, cert: pki.agent.cert, key: pki.agent.key };
  const { pipe, key } = await dialInner(outer, { host: "localhost", tls, timeoutMs: 5_000, signal });
  return { carrier, link: outer, pipe, key };
}
