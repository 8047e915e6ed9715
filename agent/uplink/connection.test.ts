import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Link } from "../../shared/link/link.ts";
import { CarrierLost } from "../../shared/link/link-events.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { welcome } from "../../shared/link/testing/ends.ts";
import { Wire } from "../../shared/link/testing/wire.ts";
import { contextOf } from "../testing/context.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { Resumption } from "./resumption.ts";

const CUT = new CarrierLost("cut", { lossCause: "reset", ageMs: 1, idleMs: 1 });
const NOTHING: ConnectionOwner = {
  onDrain: () => {},
  onServers: () => {},
  onSuspended: () => {},
  onResumed: () => {},
  onElsewhere: () => {},
  onDisowned: () => {},
  onResumeFailed: () => {},
  onClosed: () => {},
};

/** A connection whose dials are counted, and welcomed when the test says so. */
function connection(t: TestContext, carrierAgeMs: () => number, owner: Partial<ConnectionOwner> = {}) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const wire = new Wire();
  const link = new Link("s1-1", "server", wire.agent, { graceMs: 30_000, replayBytes: 1 << 20 });
  const key = LinkKey.random();
  const dials: { accept(): Promise<Wire> }[] = [];
  const made = new Connection(
    { link, key, pipe: link, welcome: welcome() },
    { ...NOTHING, ...owner },
    {
      resumeTimeoutMs: 5_000,
      carrierAgeMs,
      redial: (say) =>
        new Promise((resolve) => {
          const proof = key.answer(say(), 0);
          const accept = async () => {
            const next = new Wire();
            const resumed = { type: "resumed", version: 1, received: 0, proof } as const;
            resolve({ carrier: next.agent as never, remote: "new", resumed });
            await new Promise((settled) => setImmediate(settled));
            return next;
          };
          dials.push({ accept });
        }),
    },
    contextOf({ retry: { baseMs: 100, capMs: 1_000 } }),
  );
  t.after(() => made.session.destroy());
  return { connection: made, link, wire, dials };
}

test("a carrier that reaches its age is replaced while it lives, and so is the next one", async (t) => {
  const { dials, wire, link } = connection(t, () => 5_000);
  t.mock.timers.tick(4_999);
  assert.equal(dials.length, 0);
  t.mock.timers.tick(1);
  assert.deepEqual([dials.length, wire.agent.gone, link.suspended], [1, false, false]);
  await dials[0]?.accept();
  t.mock.timers.tick(4_999);
  assert.equal(dials.length, 1, "the age is the new carrier's");
  t.mock.timers.tick(1);
  assert.equal(dials.length, 2);
});

test("what is learned from a cut counts for the carrier that comes after it", async (t) => {
  let learnedMs = Number.POSITIVE_INFINITY;
  const onResumed = () => {
    learnedMs = 3_000;
  };
  const { dials, wire } = connection(t, () => learnedMs, { onResumed });
  wire.agent.over(CUT);
  await dials[0]?.accept();
  t.mock.timers.tick(3_000);
  assert.equal(dials.length, 2);
});

test("without an age no carrier is replaced, until the server asks", (t) => {
  const { dials, wire } = connection(t, () => Number.POSITIVE_INFINITY);
  t.mock.timers.runAll(); // also one of Infinity, which Node itself runs at once
  assert.equal(dials.length, 0);
  wire.server.sendControl({ type: "rotate", reason: "new certificates" });
  wire.deliver("server", 0);
  t.mock.timers.tick(2_000);
  assert.equal(dials.length, 1, "within two seconds, not all agents at once");
});

test("an age beyond what timers take is no age that is over at once", (t) => {
  const { dials } = connection(t, () => 60 * 24 * 3_600_000);
  t.mock.timers.tick(2 ** 31 - 2);
  assert.equal(dials.length, 0);
  t.mock.timers.tick(1);
  assert.equal(dials.length, 1, "Node's longest timer, 24 days");
});

test("a carrier that is lost after the server has asked for another one is replaced once", async (t) => {
  const { dials, wire } = connection(t, () => Number.POSITIVE_INFINITY);
  wire.server.sendControl({ type: "rotate", reason: "new certificates" });
  wire.deliver("server", 0);
  wire.agent.over(CUT);
  await dials[0]?.accept();
  t.mock.timers.tick(2_000);
  assert.equal(dials.length, 1);
});

test("the age of a carrier whose link has ended is not waited for", (t) => {
  const { link } = connection(t, () => 5_000);
  const begin = t.mock.method(Resumption.prototype, "begin");
  link.destroy();
  t.mock.timers.tick(5_000);
  assert.equal(begin.mock.callCount(), 0);
});

test("a carrier that was lost before its age is dialled for once", async (t) => {
  const { dials, wire } = connection(t, () => 5_000);
  t.mock.timers.tick(4_000);
  wire.agent.over(CUT);
  assert.equal(dials.length, 1);
  t.mock.timers.tick(4_000);
  assert.equal(dials.length, 1);
});

test("a connection that is over dials no more", (t) => {
  const { connection: made, dials } = connection(t, () => 5_000);
  made.session.destroy();
  t.mock.timers.tick(60_000);
  assert.equal(dials.length, 0);
});
