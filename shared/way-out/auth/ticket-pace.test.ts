import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { TicketPace } from "./ticket-pace.ts";

const MINUTE = 60_000;

function prepared(t: TestContext, withKeytab = true) {
  const dir = mkdtempSync(join(tmpdir(), "culvert-keytab-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const keytab = join(dir, "agent.keytab");
  const write = (content: string): void => writeFileSync(keytab, content);
  write("an old key");
  const clock = { now: 0 };
  const pace = new TicketPace(withKeytab ? { KRB5_CLIENT_KTNAME: `FILE:${keytab}` } : {}, () => clock.now);
  const tries: number[] = [];
  const fail = (): Promise<string> =>
    pace.take(async () => {
      tries.push(clock.now / MINUTE);
      throw new Error("cannot find mechanisms");
    });
  return { clock, pace, tries, fail, write };
}

test("a keytab that gives no ticket is tried four times in half an hour at most, by however many at once", async (t) => {
  const { clock, tries, fail } = prepared(t);
  for (; clock.now < 90 * MINUTE; clock.now += MINUTE / 2) {
    const ends = await Promise.allSettled([fail(), fail(), fail()]);
    const [last] = ends.slice(-1);
    assert.match(`${last?.status === "rejected" && last.reason.message}`, /agent\.keytab gave no .* again for \d+ min/);
  }
  assert.deepEqual(tries, [0, 2, 6, 14, 30, 60]);
});

test("another keytab is tried at once, and one that gave a ticket begins anew", async (t) => {
  const { pace, tries, fail, write } = prepared(t);
  await assert.rejects(fail());
  await assert.rejects(fail());
  assert.equal(tries.length, 1);
  write("a new key, which is longer");
  assert.equal(await pace.take(async () => "ticket"), "ticket");
  await assert.rejects(fail(), /cannot find mechanisms/);
});

test("without a keytab no key is tried, and a ticket is looked for each time", async (t) => {
  const { tries, fail } = prepared(t, false);
  for (let round = 0; round < 3; round++) await assert.rejects(fail(), /cannot find mechanisms/);
  assert.equal(tries.length, 3);
});
