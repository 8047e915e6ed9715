import assert from "node:assert/strict";
import { test } from "node:test";
import { Authority } from "../pki/certificates.ts";
import { AuthorityEnds, expiryConditions, expiryWarnings, type LifeStage, lifeStageOf } from "./expiry.ts";

const DAY_MS = 86_400_000;
const NOW = new Date("2026-06-01T00:00:00Z");
const days = (count: number): Date => new Date(NOW.getTime() + count * DAY_MS);

const TABLE: readonly [what: string, from: number, to: number, shown: string][] = [
  ["made for a year, far from its end", -300, 65, "well"],
  ["made for a year, 30 days before its end", -335, 30, "ending: 30"],
  ["made for a year, 7 days before its end", -358, 7, "ending: 7"],
  ["made for 90 days and to be renewed 30 days before", -61, 29, "well"],
  ["made for 90 days, 15 days before its end", -75, 15, "ending: 15"],
  ["made for 90 days, 7 days before its end", -83, 7, "ending: 7"],
  ["made for 6 days, in its last sixth", -5, 1, "ending: 1"],
  ["at its end", -10, 0, "over"],
  ["before its time", 1, 400, "early"],
];

for (const [what, from, to, wanted] of TABLE) {
  test(`something ${what}: ${wanted}`, () => {
    assert.equal(shown(lifeStageOf({ notBefore: days(from), notAfter: days(to) }, NOW)), wanted);
  });
}

function shown(stage: LifeStage | undefined): string {
  if (stage?.state !== "ending") return stage?.state ?? "well";
  return `ending: ${Math.round(stage.noticeMs / DAY_MS)}`;
}

test("of several CAs the one counts that ends next, a renewed one in place of its old certificate", async () => {
  const [old, renewed] = [await Authority.create("one", 3), await Authority.create("one", 300)];
  const other = await Authority.create("other", 10);
  const ends = new AuthorityEnds();
  const pem = [old, renewed, other].map(({ cert }) => cert).join("");
  const inDays = (now: number): number => {
    const notAfter = ends.next(pem, new Date(Date.now() + now * DAY_MS))?.notAfter ?? new Date(0);
    return Math.round((notAfter.getTime() - Date.now()) / DAY_MS);
  };
  assert.deepEqual([0, 9, 11, 299, 301].map(inDays), [10, 10, 300, 300, 300]);
  assert.equal(ends.next("", NOW), undefined);
});

test("a leaf beside a CA is named in the log and in readyz, and its end is nobody's", async () => {
  const authority = await Authority.create("ca", 300);
  const soon = new Date(Date.now() + DAY_MS / 2);
  const { cert } = await authority.issue({ cn: "agent", usage: "client", notAfter: soon });
  const next = new AuthorityEnds().next(cert + authority.cert, new Date()) ?? assert.fail();
  assert.ok(next.notAfter > soon);
  const row = {
    role: "server_ca",
    cluster: "blue",
    thing: "CA",
    by: "--ca-cert",
    consequence: "x",
    content: "y",
  } as const;
  const expiring = { ...row, ...next, fields: {} };
  const sentence = '"CN=agent" in the file of --ca-cert is a leaf, and no CA: nothing is verified by it';
  assert.deepEqual(expiryWarnings([expiring], new Date()), [`cluster "blue": ${sentence}`]);
  const [line] = expiryConditions([expiring], new Date());
  assert.deepEqual([line?.level, line?.message], ["warn", sentence]);
});
