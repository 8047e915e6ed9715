import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";
import { CertificateWatch, TokenWatch } from "./credential-watch.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** Timers that fire within one step see its end as the time. */
const STEP = 500;

/** A tunnel whose certificate expires in `lastsMs`, and what becomes of it. */
function watchedCertificate(t: TestContext, lastsMs: number) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const clock = { ms: 1_700_000_000_000 };
  t.mock.method(Date, "now", () => clock.ms);
  const told: string[] = [];
  const inMs = (ms: number) => new Date(Date.now() + ms);
  const watch = new CertificateWatch(inMs(lastsMs), {
    rotate: (reason) => told.push(`ask: ${reason}`),
    requireProof: (reason) => told.push(`end: ${reason}`),
  });
  t.after(() => watch.close());
  const asked = () => told.filter((line) => line.startsWith("ask")).length;
  const ended = () => told.filter((line) => line.startsWith("end")).length;
  const pass = (ms: number) => {
    for (let left = ms; left > 0; left -= STEP) {
      clock.ms += Math.min(left, STEP);
      t.mock.timers.tick(Math.min(left, STEP));
    }
  };
  return { watch, clock, told, inMs, asked, ended, pass };
}

test("in the last minute the agent is asked, several times; at the end, and no earlier, the tunnel ends once", (t) => {
  const { told, asked, ended, pass } = watchedCertificate(t, HOUR);
  pass(HOUR - 60 * SECOND - 1);
  assert.equal(asked(), 0);
  pass(60 * SECOND);
  assert.ok(asked() >= 3 && asked() <= 6, `asked ${asked()} times`);
  assert.equal(ended(), 0);
  pass(1);
  assert.equal(told.at(-1), "end: the agent's certificate expired on 2023-11-14T23:13:20Z");
  pass(HOUR);
  assert.equal(ended(), 1);
});

test("who comes with another certificate stays until that one ends; who comes with the same one does not", (t) => {
  const { watch, inMs, asked, ended, pass } = watchedCertificate(t, HOUR);
  pass(HOUR - 30 * SECOND);
  watch.renewed(inMs(HOUR));
  const before = asked();
  pass(HOUR - 61 * SECOND);
  assert.deepEqual([asked() - before, ended()], [0, 0]);
  pass(31 * SECOND);
  watch.renewed(inMs(30 * SECOND));
  pass(30 * SECOND);
  assert.equal(ended(), 1);
});

test("a proof whose certificate has expired on the way is none", (t) => {
  const { watch, inMs, ended, pass } = watchedCertificate(t, HOUR);
  watch.renewed(inMs(-1));
  pass(1);
  assert.equal(ended(), 1);
});

test("an end in a hundred years does not end the tunnel now", (t) => {
  const { told, pass } = watchedCertificate(t, 100 * 365 * 24 * HOUR);
  pass(HOUR);
  assert.deepEqual(told, []);
});

test("a clock that is set forward is noticed within a minute", (t) => {
  const { clock, ended, pass } = watchedCertificate(t, 24 * HOUR);
  clock.ms += 25 * HOUR;
  assert.equal(ended(), 0);
  pass(60 * SECOND);
  assert.equal(ended(), 1);
});

// ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A link whose token ends in `lastsMs`; the test says what becomes of it, and what the verifier answers. */
function watchedToken(t: TestContext, lastsMs: number) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
  const random = t.mock.method(Math, "random", () => 1);
  const identity = (ms: number) => ({ subject: "s", expiresAt: new Date(Date.now() + ms) });
  const state = {
    verdict: { ok: identity(lastsMs) } as VerificationResult,
    verified: [] as string[],
    told: [] as string[],
  };
  const verifier: TokenVerifier = {
    verify: async (token) => {
      state.verified.push(token);
      return state.verdict;
    },
    close: () => {},
  };
  const watch = new TokenWatch(
    { text: "first", identity: identity(lastsMs), verifier },
    {
      rotate: (reason) => state.told.push(`ask: ${reason}`),
      destroy: ({ message }) => state.told.push(`end: ${message}`),
    },
    (reason, detail) => state.told.push(`unavailable: ${reason} ${detail}`),
  );
  t.after(() => watch.close());
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await new Promise((settled) => setImmediate(settled));
  };
  return { watch, state, identity, random, pass };
}

test("a token is verified again and again; if its account has gone a new one is asked for, then the link ends", async (t) => {
  const { state, pass } = watchedToken(t, 60 * MINUTE);
  await pass(MINUTE);
  await pass(MINUTE);
  assert.deepEqual([state.verified, state.told], [["first", "first"], []]);
  state.verdict = { refused: "the account has gone" };
  await pass(MINUTE);
  assert.deepEqual(state.told, ["ask: the account has gone"]);
  await pass(9_999);
  assert.equal(state.told.length, 1);
  await pass(1);
  assert.deepEqual(state.told.slice(1), ["end: the account has gone"]);
  await pass(60 * MINUTE);
  assert.equal(state.told.length, 2, "and nothing after");
});

test("at the token's end the agent is asked; with a fresh one the link goes on", async (t) => {
  const { watch, state, identity, pass } = watchedToken(t, 30_000);
  await pass(30_000);
  assert.match(state.told.join(), /^ask: the token expired at 2023-11-14T22:13:50Z/);
  watch.renewed("second", identity(60 * MINUTE));
  await pass(MINUTE);
  assert.deepEqual([state.verified, state.told.length], [["second"], 1]);
});

test("a connection with the old token does not put the cut off", async (t) => {
  const { watch, state, identity, pass } = watchedToken(t, 30_000);
  await pass(30_000);
  watch.renewed("first", identity(0));
  await pass(10_000);
  assert.deepEqual(
    state.told.map((line) => line.slice(0, 3)),
    ["ask", "end"],
  );
});

test("a refusal of the old token that comes after a fresh one is no matter", async (t) => {
  const { watch, state, identity, pass } = watchedToken(t, 60 * MINUTE);
  state.verdict = { refused: "the account has gone" };
  t.mock.timers.tick(MINUTE); // under verification, and the verdict not yet there
  watch.renewed("second", identity(60 * MINUTE));
  await pass(0);
  assert.deepEqual([state.verified, state.told], [["first"], []]);
});

test("a refusal that comes after the agent was asked does not put the end off", async (t) => {
  const { watch, state, identity, pass } = watchedToken(t, 60 * MINUTE);
  state.verdict = { refused: "the account has gone" };
  t.mock.timers.tick(MINUTE);
  watch.renewed("first", identity(5));
  t.mock.timers.tick(5);
  await pass(0);
  assert.deepEqual([state.verified.length, state.told.length], [1, 1]);
});

test("links that were admitted together are not verified all at once, and an API server is not asked in a loop", async (t) => {
  const { watch, state, identity, random, pass } = watchedToken(t, 60 * MINUTE);
  random.mock.mockImplementation(() => 0);
  watch.renewed("first", identity(60 * MINUTE));
  state.verdict = { unavailable: "down", detail: "", retryAfterMs: 0 };
  await pass(0.8 * MINUTE);
  assert.equal(state.verified.length, 1);
  await pass(999);
  assert.equal(state.verified.length, 1);
  await pass(1);
  assert.equal(state.verified.length, 2);
});

test("an API server that is down ends no link before the token expires", async (t) => {
  const { state, pass } = watchedToken(t, 2 * MINUTE);
  state.verdict = { unavailable: "no answer", detail: "ECONNREFUSED", retryAfterMs: 5_000 };
  await pass(MINUTE);
  await pass(5_000);
  assert.deepEqual(state.told, Array(2).fill("unavailable: no answer ECONNREFUSED"));
  for (let i = 0; i < 11; i++) await pass(5_000);
  assert.match(state.told.at(-1) ?? "", /^ask: the token expired/);
});

test("a closed watch verifies nothing and reports nothing", async (t) => {
  const { watch, state, pass } = watchedToken(t, 30_000);
  watch.close();
  watch.renewed("second", { subject: "s", expiresAt: new Date(0) });
  await pass(60 * MINUTE);
  assert.deepEqual([state.verified, state.told], [[], []]);
});

test("a token that lasts longer than any timer waits for its turn", async (t) => {
  const { state, pass } = watchedToken(t, 2 ** 40);
  await pass(MINUTE);
  assert.deepEqual([state.verified, state.told], [["first"], []]);
});
