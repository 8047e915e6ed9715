import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CloseCode } from "../wire/handshake.ts";
import type { ControlMessage } from "./control.ts";
import { Link } from "./link.ts";
import type { CarrierLost, ResumeReport } from "./link-events.ts";
import { lost, Wire } from "./testing/wire.ts";

const GRACE_MS = 30_000;

/** One end of a link, what has become of it, and what it was given. */
class End {
  readonly link: Link;
  readonly told: ControlMessage[] = [];
  readonly resumed: ResumeReport[] = [];
  readonly ends: (Error | undefined)[] = [];
  got = "";

  constructor(wire: Wire, side: "agent" | "server") {
    this.link = new Link("link", side, wire[side], { graceMs: GRACE_MS, replayBytes: 1 << 20 });
    this.link.watch({
      onControl: (message) => this.told.push(message),
      onResumed: (resumption) => this.resumed.push(resumption),
    });
    this.link.start({
      onBytes: (chunk) => {
        this.got += chunk.toString();
      },
      onWritable: () => {},
      onClosed: (reason) => this.ends.push(reason),
    });
  }

  say(words: string): void {
    this.link.write([Buffer.from(words)], words.length);
  }
}

/** Both ends of a link on its first carrier. */
function world(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const wire = new Wire();
  const agent = new End(wire, "agent");
  const server = new End(wire, "server");
  t.after(() => {
    for (const { link } of [agent, server]) link.destroy();
  });
  return { wire, agent, server };
}

/**
 * The agent's hello reaches the server, which offers its link the new carrier. Returns what the agent has to do then.
 */
function offer({ agent, server }: ReturnType<typeof world>) {
  const wire = new Wire();
  agent.link.acks.hold();
  const named = agent.link.received;
  const peerReceived = server.link.received;
  server.link.offer(wire.server, "new", { peerReceived: named, named: peerReceived });
  const welcomed = () => {
    agent.link.resume(wire.agent, "new", { peerReceived, named });
    agent.link.acks.now();
  };
  return { wire, welcomed };
}

test("a carrier that the agent has given up takes over from none: the link waits for the next one", (t) => {
  const both = world(t);
  const { wire, agent, server } = both;
  const { wire: given } = offer(both);
  server.say("arrived on the old one");
  wire.deliver("server", 100);
  agent.link.acks.release(); // the welcome has not come in time
  t.mock.timers.tick(20);
  wire.deliver("agent", 0);
  assert.equal(server.link.unacknowledged, 0);
  wire.server.notice();
  assert.deepEqual([server.ends, server.link.suspended], [[], true]);
  assert.equal(given.server.closedWith, CloseCode.superseded);
});

test("an end that meets a change of carriers comes behind all that the agent has ignored on the old one", (t) => {
  const both = world(t);
  const { wire, agent, server } = both;
  const { wire: next, welcomed } = offer(both);
  server.say("the last words");
  server.link.end();
  welcomed(); // before the last words have come on the old carrier, where they count no more
  wire.deliver("server", 100);
  wire.server.over(undefined); // the agent's WebSocket answers a close frame, whoever still listens to it
  assert.equal(server.ends.length, 0);
  next.deliver("agent", 0);
  next.deliver("server", 100);
  assert.deepEqual([agent.got, agent.ends], ["the last words", [undefined]]);
});

test("an end of which all has been acknowledged waits for no other carrier", (t) => {
  const both = world(t);
  const { wire, agent, server } = both;
  server.say("the last words");
  wire.deliver("server", 100);
  t.mock.timers.tick(20);
  wire.deliver("agent", 0);
  offer(both);
  server.link.end();
  wire.server.over(undefined);
  assert.deepEqual([agent.got, server.ends], ["the last words", [undefined]]);
});

test("the end of a link is also sent on the carrier that was to take over", async (t) => {
  await t.test("in order", (each) => {
    const both = world(each);
    const { wire: next, welcomed } = offer(both);
    welcomed();
    both.wire.server.over(undefined);
    assert.equal(next.server.closedWith, CloseCode.normal);
    next.deliver("server", 100);
    assert.deepEqual(both.agent.ends, [undefined]);
  });
  await t.test("by a fault", (each) => {
    const both = world(each);
    const { wire: next } = offer(both);
    both.wire.server.over(new Error("a frame of no kind"));
    assert.equal(next.server.closedWith, CloseCode.ended);
  });
});

test("a request of the server on the old carrier reaches an agent that has moved on", (t) => {
  const both = world(t);
  const { wire, agent, server } = both;
  const { welcomed } = offer(both);
  welcomed();
  const asked = { type: "rotate", reason: "the token has expired" } as const;
  server.link.sendControl(asked);
  wire.deliver("server", 0);
  assert.deepEqual(agent.told, [asked]);
  agent.link.destroy();
  server.link.sendControl(asked);
  wire.deliver("server", 0);
  assert.equal(agent.told.length, 1, "after its end a link is told of nothing");
});

test("each end probes a new carrier for five seconds", (t) => {
  const both = world(t);
  const { wire: next, welcomed } = offer(both);
  welcomed();
  assert.deepEqual([next.server.probedMs, next.agent.probedMs], [5_000, 5_000]);
  both.wire.server.notice();
  next.server.notice();
  assert.equal(both.server.link.suspended, true);
  assert.equal(offer(both).wire.server.probedMs, 5_000);
});

test("a hello that names less than has been acknowledged is stale, also while what it names is sent once more", (t) => {
  const both = world(t);
  const { wire, server } = both;
  const bytes = 5 * 64 * 1024; // more than is sent at once
  for (let part = 0; part < 5; part++) server.say("x".repeat(bytes / 5));
  const { wire: next, welcomed } = offer(both);
  wire.deliver("server", bytes);
  welcomed();
  next.deliver("agent", 0); // acknowledges all of it, while its beginning is on its way once more
  assert.equal(server.link.canResumeAt(bytes - 1), false);
  assert.equal(server.link.canResumeAt(bytes), true);
});

test("a resume says how the carrier before was lost, and of one that lived that none was", (t) => {
  const both = world(t);
  const { wire, agent, server } = both;
  const cause = lost("cut");
  wire.server.over(cause);
  wire.agent.over(cause);
  const { wire: second, welcomed } = offer(both);
  welcomed();
  second.deliver("agent", 0);
  const { wire: third, welcomed: welcomedAgain } = offer(both);
  welcomedAgain();
  third.deliver("agent", 0);
  for (const { resumed } of [agent, server]) {
    const losses: (CarrierLost | undefined)[] = resumed.map((resumption) => resumption.lost);
    assert.deepEqual(losses, [cause, undefined]);
  }
});

test("a link that ends while it acknowledges gives its session nothing more", (t) => {
  const { wire, agent, server } = world(t);
  const fault = new Error("the peer reads no answers");
  wire.server.sendControl = () => wire.server.over(fault);
  agent.say("x".repeat(64 * 1024)); // acknowledged at once
  wire.deliver("agent", 64 * 1024);
  assert.deepEqual([server.ends, server.got], [[fault], ""]);
});

test("a carrier on offer is closed when another one takes its place, on offer or at once", (t) => {
  const both = world(t);
  const { wire: first } = offer(both);
  const { wire: second } = offer(both);
  assert.equal(first.server.closedWith, CloseCode.superseded);
  both.server.link.resume(new Wire().server, "new", { peerReceived: 0, named: 0 });
  assert.equal(second.server.closedWith, CloseCode.superseded);
});

test("a link that is given up in the middle of a change abandons both its carriers", (t) => {
  const both = world(t);
  const { wire: next } = offer(both);
  both.server.link.destroy();
  for (const end of [both.wire.server, next.server]) {
    assert.deepEqual([end.closedWith, end.isAbandoned], [CloseCode.ended, true]);
  }
});

/** The carrier of both is cut, and the agent finds the way back. */
function cutAndResume(both: ReturnType<typeof world>, wire: Wire): Wire {
  wire.cut();
  wire.agent.notice();
  wire.server.notice();
  const next = offer(both);
  next.welcomed();
  return next.wire;
}

test("a link whose carriers are cut over the same bytes again and again ends, and says so to the other end", (t) => {
  const both = world(t);
  const { agent, server } = both;
  agent.say("what a box does not like");
  let wire = both.wire;
  for (let cuts = 1; cuts <= 9; cuts++) {
    assert.deepEqual([agent.ends, server.ends], [[], []], `after ${cuts - 1} cuts`);
    wire = cutAndResume(both, wire);
  }
  assert.match(agent.ends[0]?.message ?? "", /^8 connections in a row were cut over what was to be sent again: cut$/);
  assert.equal(wire.agent.closedWith, CloseCode.ended);
});

test("a link whose carriers are cut again and again lives as long as something arrives, or nothing waits", (t) => {
  const both = world(t);
  const { agent, server } = both;
  let wire = both.wire;
  for (let cuts = 0; cuts < 20; cuts++) wire = cutAndResume(both, wire);
  agent.say("little by little");
  for (let cuts = 0; cuts < 30; cuts++) {
    if (cuts % 8 === 7) wire.deliver("agent", 1);
    wire = cutAndResume(both, wire);
  }
  assert.deepEqual([agent.ends, server.ends, server.got], [[], [], "lit"]);
});
