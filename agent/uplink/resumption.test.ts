import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { ProvenResume } from "../../shared/link/control.ts";
import type { DialledAgain } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { CarrierLost } from "../../shared/link/link-events.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { Wire } from "../../shared/link/testing/wire.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { type Carriers, Resumption } from "./resumption.ts";

const GRACE_MS = 30_000;
const CUT = new CarrierLost("cut", { lossCause: "reset", ageMs: 1, idleMs: 1 });

interface Dial {
  readonly resume: ProvenResume;
  readonly signal: AbortSignal;
  /**
   * The server, or somebody else with this key, says that it has received `received` bytes; returns the new carrier's
   * wire.
   */
  accept(received?: number, by?: LinkKey): Promise<Wire>;
  refuse(error: unknown): Promise<void>;
}

/** A link whose dials wait for the test's answer. */
function resumable(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const wire = new Wire();
  const link = new Link("s1-1", "server", wire.agent, { graceMs: GRACE_MS, replayBytes: 1 << 20 });
  const ends: (Error | undefined)[] = [];
  const dials: Dial[] = [];
  const elsewhere = { count: 0 };
  const disowned = { count: 0 };
  const failures: unknown[] = [];
  const key = LinkKey.random();
  const source: Carriers = {
    resumeTimeoutMs: 5_000,
    carrierAgeMs: () => Number.POSITIVE_INFINITY,
    redial: (say, signal) =>
      new Promise((resolve, reject) => {
        const resume = say();
        const settled = () => new Promise<void>((done) => setImmediate(done));
        signal.addEventListener("abort", () => reject(new Error("the attempt was cancelled")));
        dials.push({
          resume,
          signal,
          accept: async (received = 0, by = key) => {
            const next = new Wire();
            const carrier = next.agent as unknown as DialledAgain["carrier"];
            const resumed = { type: "resumed", version: 1, received, proof: by.answer(resume, received) } as const;
            resolve({ carrier, resumed, remote: "new" });
            await settled();
            return next;
          },
          refuse: async (error) => {
            reject(error);
            await settled();
          },
        });
      }),
  };
  const retry = { baseMs: 100, capMs: 10_000, random: () => 0.5 };
  const resumption = new Resumption({ link, key }, source, retry, {
    onElsewhere: () => elsewhere.count++,
    onDisowned: () => disowned.count++,
    onFailed: (error) => failures.push(error),
  });
  link.watch({ onSuspended: () => resumption.lost(), onClosed: () => resumption.stop() });
  link.start({ onBytes: () => {}, onWritable: () => {}, onClosed: (reason) => ends.push(reason) });
  t.after(() => link.destroy());
  return { link, wire, dials, elsewhere, disowned, failures, ends, resumption };
}

const refused = (closeCode: number) => new LinkRefused({ closeCode, reason: "no" });

test("a lost carrier is replaced at once, with what was received, and each attempt has a higher counter", async (t) => {
  const { link, wire, dials } = resumable(t);
  wire.server.write([Buffer.from("seven b")], 7);
  wire.deliver("server", 100);
  wire.agent.over(CUT);
  assert.deepEqual(
    dials.map(({ resume }) => [resume.link, resume.counter, resume.received]),
    [["s1-1", 1, 7]],
  );
  const next = await dials[0]?.accept();
  assert.equal(link.suspended, false);
  next?.agent.over(CUT);
  assert.equal(dials[1]?.resume.counter, 2);
});

test("while the link waits, failures are counted and followed by short waits, until one attempt succeeds", async (t) => {
  const { link, wire, dials, failures, resumption } = resumable(t);
  wire.agent.over(CUT);
  for (let attempt = 1; attempt <= 12; attempt++) {
    await dials.at(-1)?.refuse(new Error("connect ECONNREFUSED"));
    assert.deepEqual([failures.length, resumption.failures], [attempt, attempt]);
    t.mock.timers.tick(1_000);
    assert.equal(dials.length, attempt + 1, "a second at most");
  }
  await dials.at(-1)?.accept();
  assert.deepEqual([link.suspended, resumption.failures], [false, 0]);
});

test("carriers that are cut as soon as they carry are dialled for with waits between, at most a second", async (t) => {
  const { link, wire, dials } = resumable(t);
  t.mock.method(performance, "now", () => 0);
  wire.agent.over(CUT);
  let next = await dials[0]?.accept();
  next?.agent.over(CUT);
  assert.equal(dials.length, 2, "one cut is an accident");
  for (let cut = 2; cut <= 8; cut++) {
    next = await dials.at(-1)?.accept();
    next?.agent.over(CUT);
    assert.deepEqual([dials.length, link.suspended], [cut, true], "what cut them may cut the next");
    t.mock.timers.tick(1_000);
    assert.equal(dials.length, cut + 1);
  }
});

test("a carrier that has lived for a second is replaced at once, whatever became of those before", async (t) => {
  const { wire, dials } = resumable(t);
  let now = 0;
  t.mock.method(performance, "now", () => now);
  wire.agent.over(CUT);
  for (let cut = 1; cut <= 3; cut++) {
    (await dials.at(-1)?.accept())?.agent.over(CUT);
    t.mock.timers.tick(1_000);
  }
  for (let life = 1; life <= 3; life++) {
    const next = await dials.at(-1)?.accept();
    now += 1_000;
    const before = dials.length;
    next?.agent.over(CUT);
    assert.equal(dials.length, before + 1);
  }
});

test("a link that the server does not know is over, whatever of its grace is left", async (t) => {
  for (const code of ["unknownLink", "badProof", "linkOfAnother", "badOffset"] as const) {
    await t.test(code, async (each) => {
      const { link, wire, dials, ends } = resumable(each);
      wire.agent.over(CUT);
      await dials[0]?.refuse(refused(CloseCode[code]));
      assert.equal(link.closed, true);
      assert.ok(ends[0] instanceof LinkRefused);
      each.mock.timers.tick(GRACE_MS);
      assert.equal(dials.length, 1);
    });
  }
});

test("another server behind the balancer is reported, and its own one looked for on", async (t) => {
  const { link, wire, dials, elsewhere } = resumable(t);
  wire.agent.over(CUT);
  await dials[0]?.refuse(refused(CloseCode.foreignLink));
  assert.deepEqual([elsewhere.count, link.suspended], [1, true]);
  t.mock.timers.tick(5_000);
  await dials[1]?.accept();
  assert.equal(link.suspended, false);
});

test("an agent that ends itself looks for the link's server in haste, and not on where others answer again and again", async (t) => {
  const { link, wire, dials, ends, resumption } = resumable(t);
  wire.agent.over(CUT);
  await dials[0]?.refuse(refused(CloseCode.foreignLink));
  resumption.hasten();
  assert.equal(dials.length, 2, "it asks again at once");
  await dials[1]?.refuse(new Error("connect ECONNREFUSED"));
  for (let answer = 1; answer <= 5; answer++) {
    assert.equal(link.closed, false, "one that was not reached may still be there");
    t.mock.timers.tick(1_000);
    assert.equal(dials.length, answer + 2);
    await dials.at(-1)?.refuse(refused(CloseCode.foreignLink));
  }
  assert.match(ends[0]?.message ?? "", /^5 times in a row another server than the link's has answered$/);
});

test("where others have answered again and again, an agent that ends itself does not ask once more", async (t) => {
  const { link, wire, dials, resumption } = resumable(t);
  wire.agent.over(CUT);
  for (let answer = 1; answer <= 5; answer++) {
    await dials.at(-1)?.refuse(refused(CloseCode.foreignLink));
    t.mock.timers.tick(answer < 5 ? 5_000 : 0);
  }
  assert.deepEqual([dials.length, link.closed], [5, false], "an agent that stays looks on");
  resumption.hasten();
  assert.equal(link.closed, true);
});

test("an agent that ends itself resumes a link whose server is found", async (t) => {
  const { link, wire, dials, resumption } = resumable(t);
  wire.agent.over(CUT);
  for (let answer = 1; answer <= 4; answer++) {
    await dials.at(-1)?.refuse(refused(CloseCode.foreignLink));
    if (answer === 1) resumption.hasten();
    t.mock.timers.tick(1_000);
  }
  await dials.at(-1)?.accept();
  assert.equal(link.suspended, false);
});

test("answers of other servers count anew for each carrier that is lost", async (t) => {
  const { link, wire, dials, resumption } = resumable(t);
  wire.agent.over(CUT);
  for (let answer = 1; answer <= 4; answer++) {
    await dials.at(-1)?.refuse(refused(CloseCode.foreignLink));
    t.mock.timers.tick(5_000);
  }
  const next = await dials.at(-1)?.accept();
  next?.agent.over(CUT);
  await dials.at(-1)?.refuse(refused(CloseCode.foreignLink));
  resumption.hasten();
  assert.deepEqual([link.closed, dials.length], [false, 7]);
});

test("when the grace is over nothing is dialled any more, and an attempt under way is given up", async (t) => {
  const { wire, dials, ends } = resumable(t);
  wire.agent.over(CUT);
  t.mock.timers.tick(GRACE_MS);
  assert.match(ends[0]?.message ?? "", /^no new connection came within 30 s: cut$/);
  assert.equal(dials[0]?.signal.aborted, true);
  t.mock.timers.tick(GRACE_MS);
  assert.equal(dials.length, 1);
});

test("a link that ends between two attempts leaves no timer that waits for the next one", async (t) => {
  for (const isOver of [false, true]) {
    await t.test(isOver ? "it ends" : "it goes on", async (each) => {
      const { link, dials, resumption } = resumable(each);
      resumption.begin();
      await dials[0]?.refuse(new Error("connect ECONNREFUSED"));
      if (isOver) link.destroy();
      const begin = each.mock.method(resumption, "begin");
      each.mock.timers.tick(60_000);
      assert.equal(begin.mock.callCount(), isOver ? 0 : 1);
    });
  }
});

test("a planned change that is refused leaves the link to the carrier it has", async (t) => {
  const { link, wire, dials, resumption, ends } = resumable(t);
  resumption.begin();
  await dials[0]?.refuse(refused(CloseCode.badProof));
  assert.deepEqual([link.suspended, link.closed, ends.length], [false, false, 0]);
  wire.server.write([Buffer.from("on")], 2);
  wire.deliver("server", 2);
  assert.equal(link.received, 2);
  t.mock.timers.tick(1_000);
  const acks = wire.agent.sent.filter((item) => "message" in item && item.message.type === "ack");
  assert.ok(acks.length > 0, "the server must not wait for what was held for the new carrier");
});

test("a change that is wanted while one that has failed waits takes its place", async (t) => {
  const { dials, resumption } = resumable(t);
  resumption.begin();
  await dials[0]?.refuse(new Error("connect ECONNREFUSED"));
  resumption.begin();
  await dials[1]?.accept();
  t.mock.timers.tick(60_000);
  assert.equal(dials.length, 2);
});

test("a planned change for which the link is another's now is not tried again, until it is wanted anew", async (t) => {
  const { link, dials, disowned, resumption } = resumable(t);
  resumption.begin();
  await dials[0]?.refuse(refused(CloseCode.linkOfAnother));
  assert.deepEqual([disowned.count, link.closed], [1, false]);
  t.mock.timers.tick(60_000);
  assert.equal(dials.length, 1);
  resumption.begin(); // the old certificate is back
  await dials[1]?.accept();
  assert.equal(link.closed, false);
});

test("a carrier that is lost while its successor is dialled needs no second dial", async (t) => {
  const { link, wire, dials, resumption } = resumable(t);
  resumption.begin();
  wire.agent.over(CUT);
  assert.equal(dials.length, 1);
  await dials[0]?.accept();
  assert.equal(link.suspended, false);
});

test("a planned change has as long as a resume from its hello on, and from the loss of the carrier before", async (t) => {
  const { link, wire, dials, failures, resumption } = resumable(t);
  resumption.begin();
  t.mock.timers.tick(4_999);
  assert.equal(dials[0]?.signal.aborted, false);
  t.mock.timers.tick(1);
  assert.equal(dials[0]?.signal.aborted, true);
  await new Promise(setImmediate);
  assert.match(String(failures[0]), /had no answer within 5 s/);
  t.mock.timers.tick(100);
  t.mock.timers.tick(3_000);
  wire.agent.over(CUT);
  t.mock.timers.tick(4_999);
  assert.deepEqual([link.suspended, dials.length, dials[1]?.signal.aborted], [true, 2, false]);
  t.mock.timers.tick(1);
  await new Promise(setImmediate);
  t.mock.timers.tick(1_000);
  await dials[2]?.accept();
  assert.equal(link.suspended, false);
});

test("an answer without the server's proof is worth nothing: the carrier is closed, and the next one is dialled", async (t) => {
  const { link, wire, dials, failures } = resumable(t);
  wire.agent.over(CUT);
  const next = await dials[0]?.accept(0, LinkKey.random());
  assert.match(String(failures[0]), /does not prove that it comes from the server/);
  assert.deepEqual([link.suspended, link.closed, next?.agent.gone], [true, false, true]);
  t.mock.timers.tick(1_000);
  await dials[1]?.accept();
  assert.equal(link.suspended, false);
});

test("an answer with an offset that was never sent ends the link", async (t) => {
  const { link, wire, dials } = resumable(t);
  wire.agent.over(CUT);
  const next = await dials[0]?.accept(5);
  assert.deepEqual([link.closed, next?.agent.closedWith], [true, CloseCode.badOffset]);
});
