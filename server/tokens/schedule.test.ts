import assert from "node:assert/strict";
import { test } from "node:test";
import { asked, due, judged, renewed, type Standing, trusted } from "./schedule.ts";

const OPTIONS = { everyMs: 60_000, patienceMs: 10_000, random: () => 1 };
const identity = (expiresAtMs: number) => ({ subject: "s", expiresAt: new Date(expiresAtMs) });
const unavailable = (retryAfterMs: number) => ({ unavailable: "down", detail: "", retryAfterMs });

test("a token is judged again in time, and asked for anew at its end, whichever comes first", () => {
  const long = trusted(identity(3_600_000), 1_000, OPTIONS);
  assert.deepEqual(due(long), { what: "judge", atMs: 61_000 });
  assert.deepEqual(due(trusted(identity(20_000), 1_000, OPTIONS)), { what: "ask", atMs: 20_000 });
  assert.deepEqual(due(trusted(identity(500), 1_000, OPTIONS)), { what: "ask", atMs: 500 });
  const early = trusted(identity(3_600_000), 1_000, { ...OPTIONS, random: () => 0 });
  assert.deepEqual(due(early), { what: "judge", atMs: 49_000 }, "not all at once");
});

test("what a later judgement makes of a link that is trusted", () => {
  const before = trusted(identity(3_600_000), 0, OPTIONS);
  const after = (verdict: Parameters<typeof judged>[1]) => judged(before, verdict, 60_000, OPTIONS);
  assert.deepEqual(due(after({ ok: identity(3_600_000) })), { what: "judge", atMs: 120_000 });
  assert.deepEqual(after({ refused: "gone" }), { state: "asked", reason: "gone", cutAtMs: 70_000 });
  assert.deepEqual(due(after(unavailable(5_000))), { what: "judge", atMs: 65_000 }, "the link goes on");
  assert.deepEqual(due(after(unavailable(0))), { what: "judge", atMs: 61_000 }, "and nobody is asked in a loop");
});

test("an agent that is asked has its time, which only a token that lasts can end", () => {
  const standing = asked("expired", 50_000, OPTIONS);
  assert.deepEqual(due(standing), { what: "cut", atMs: 60_000 });
  const unchanged: Standing[] = [
    judged(standing, { refused: "again" }, 55_000, OPTIONS),
    judged(standing, { ok: identity(3_600_000) }, 55_000, OPTIONS),
    renewed(standing, identity(50_000), 55_000, OPTIONS),
  ];
  for (const next of unchanged) assert.deepEqual(next, standing);
  assert.deepEqual(renewed(standing, identity(900_000), 55_000, OPTIONS), trusted(identity(900_000), 55_000, OPTIONS));
});
