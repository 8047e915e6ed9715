import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { asked, nextStep, renewed, type TokenState, TokenWatch, trusted, verified } from "./token-watch.ts";
import type { TokenVerifier, VerificationResult } from "./verifier.ts";

const MINUTE = 60_000;

/** A link whose token ends in `lastsMs`; the test says what becomes of it, and what the verifier answers. */
function watched(t: TestContext, lastsMs: number) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_700_000_000_000 });
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
    "first",
    identity(lastsMs),
    {
      onAsk: (reason) => state.told.push(`ask: ${reason}`),
      onTimeout: (reason) => state.told.push(`end: ${reason}`),
      onUnavailable: (reason, detail) => state.told.push(`unavailable: ${reason} ${detail}`),
    },
    { verifier, everyMs: MINUTE, patienceMs: 10_000, random: () => 1 },
  );
  t.after(() => watch.close());
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await new Promise((settled) => setImmediate(settled));
  };
  return { watch, state, identity, pass };
}

test("a token is verified again and again; if its account has gone a new one is asked for, then the link ends", async (t) => {
  const { state, pass } = watched(t, 60 * MINUTE);
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
  const { watch, state, identity, pass } = watched(t, 30_000);
  await pass(30_000);
  assert.match(state.told.join(), /^ask: the token expired at 2023-11-14T22:13:50Z/);
  watch.renewed("second", identity(60 * MINUTE));
  await pass(MINUTE);
  assert.deepEqual([state.verified, state.told.length], [["second"], 1]);
});

test("a connection with the old token does not put the cut off", async (t) => {
  const { watch, state, identity, pass } = watched(t, 30_000);
  await pass(30_000);
  watch.renewed("first", identity(0));
  await pass(10_000);
  assert.deepEqual(
    state.told.map((line) => line.slice(0, 3)),
    ["ask", "end"],
  );
});

test("a refusal of the old token that comes after a fresh one is no matter", async (t) => {
  const { watch, state, identity, pass } = watched(t, 60 * MINUTE);
  state.verdict = { refused: "the account has gone" };
  t.mock.timers.tick(MINUTE); // under verification, and the verdict not yet there
  watch.renewed("second", identity(60 * MINUTE));
  await pass(0);
  assert.deepEqual([state.verified, state.told], [["first"], []]);
});

test("an API server that is down ends no link before the token expires", async (t) => {
  const { state, pass } = watched(t, 2 * MINUTE);
  state.verdict = { unavailable: "no answer", detail: "ECONNREFUSED", retryAfterMs: 5_000 };
  await pass(MINUTE);
  await pass(5_000);
  assert.deepEqual(state.told, Array(2).fill("unavailable: no answer ECONNREFUSED"));
  for (let i = 0; i < 11; i++) await pass(5_000);
  assert.match(state.told.at(-1) ?? "", /^ask: the token expired/);
});

test("a closed watch verifies nothing and reports nothing", async (t) => {
  const { watch, state, pass } = watched(t, 30_000);
  watch.close();
  watch.renewed("second", { subject: "s", expiresAt: new Date(0) });
  await pass(60 * MINUTE);
  assert.deepEqual([state.verified, state.told], [[], []]);
});

test("a token that lasts longer than any timer waits for its turn", async (t) => {
  const { state, pass } = watched(t, 2 ** 40);
  await pass(MINUTE);
  assert.deepEqual([state.verified, state.told], [["first"], []]);
});

// ── the schedule ─────────────────────────────────────────────────────────────────────────────────────────────────────

const OPTIONS = { everyMs: 60_000, patienceMs: 10_000, random: () => 1 };
const identity = (expiresAtMs: number) => ({ subject: "s", expiresAt: new Date(expiresAtMs) });
const unavailable = (retryAfterMs: number) => ({ unavailable: "down", detail: "", retryAfterMs });

test("a token is verified again in time, and asked for anew at its end, whichever comes first", () => {
  const long = trusted(identity(3_600_000), 1_000, OPTIONS);
  assert.deepEqual(nextStep(long), { what: "verify", atMs: 61_000 });
  assert.deepEqual(nextStep(trusted(identity(20_000), 1_000, OPTIONS)), { what: "ask", atMs: 20_000 });
  assert.deepEqual(nextStep(trusted(identity(500), 1_000, OPTIONS)), { what: "ask", atMs: 500 });
  const early = trusted(identity(3_600_000), 1_000, { ...OPTIONS, random: () => 0 });
  assert.deepEqual(nextStep(early), { what: "verify", atMs: 49_000 }, "not all at once");
});

test("the state of a trusted link after another verification", () => {
  const before = trusted(identity(3_600_000), 0, OPTIONS);
  const after = (verdict: Parameters<typeof verified>[1]) => verified(before, verdict, 60_000, OPTIONS);
  assert.deepEqual(nextStep(after({ ok: identity(3_600_000) })), { what: "verify", atMs: 120_000 });
  assert.deepEqual(after({ refused: "gone" }), { state: "asked", reason: "gone", endAtMs: 70_000 });
  assert.deepEqual(nextStep(after(unavailable(5_000))), { what: "verify", atMs: 65_000 }, "the link goes on");
  assert.deepEqual(nextStep(after(unavailable(0))), { what: "verify", atMs: 61_000 }, "and nobody is asked in a loop");
});

test("an agent that is asked has its time, which only a token that lasts can end", () => {
  const standing = asked("expired", 50_000, OPTIONS);
  assert.deepEqual(nextStep(standing), { what: "end", atMs: 60_000 });
  const unchanged: TokenState[] = [
    verified(standing, { refused: "again" }, 55_000, OPTIONS),
    verified(standing, { ok: identity(3_600_000) }, 55_000, OPTIONS),
    renewed(standing, identity(50_000), 55_000, OPTIONS),
  ];
  for (const next of unchanged) assert.deepEqual(next, standing);
  assert.deepEqual(renewed(standing, identity(900_000), 55_000, OPTIONS), trusted(identity(900_000), 55_000, OPTIONS));
});
