import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { DescriptorWatch, type FilesLeft, filesLeft, limitFor } from "./descriptor-watch.ts";

const TABLE: ReadonlyArray<readonly [open: number, limit: number, before: FilesLeft, now: FilesLeft]> = [
  [899, 1_000, "enough", "enough"],
  [900, 1_000, "enough", "few"],
  [800, 1_000, "few", "few"],
  [799, 1_000, "few", "enough"],
  [937, 1_000, "few", "few"],
  [938, 1_000, "few", "none"], // a sixteenth of a small limit is kept back
  [937, 1_000, "none", "none"], // until twice as many are free
  [877, 1_000, "none", "none"],
  [876, 1_000, "none", "few"],
  [800, 1_000, "none", "few"],
  [799, 1_000, "none", "enough"],
  [960, 1_024, "few", "none"],
  [959, 1_024, "none", "none"],
  [896, 1_024, "none", "few"],
  [99_935, 100_000, "few", "few"],
  [99_936, 100_000, "few", "none"], // 64 of a large one
  [99_873, 100_000, "none", "none"],
  [99_872, 100_000, "none", "few"],
  [1_010, 1_000, "few", "none"], // inherited, or the limit was lowered
];

test("few are told from 90 % on and enough below 80 %, and the last ones count as none", () => {
  for (const [open, limit, before, now] of TABLE) {
    assert.equal(filesLeft(open, limit, before), now, `${open} of ${limit} after ${before}`);
  }
});

test("a limit can be named at which so many are just not few", () => {
  for (let open = 1; open < 20_000; open++) {
    const limit = limitFor(open);
    assert.equal(filesLeft(open, limit, "enough"), "enough", `${open} of ${limit}`);
    assert.notEqual(filesLeft(open, limit - 1, "enough"), "enough", `${open} of ${limit - 1}`);
  }
});

test("each change is told once, within a second, and sooner while there are few", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let open = 10;
  const told: string[] = [];
  const watch = new DescriptorWatch({
    limit: 1_000,
    count: async () => open,
    onChange: ({ left, open, limit }) => told.push(`${left} ${open}/${limit}`),
  });
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  watch.start();
  await turn();
  assert.equal(watch.seen?.left, "enough");
  open = 950;
  // A look takes no time to speak of, and it rests for ten times as long.
  await pass(1_100);
  assert.deepEqual(told, ["none 950/1000"]);
  open = 850;
  await pass(150);
  open = 0;
  await pass(150);
  assert.deepEqual(told.slice(1), ["few 850/1000", "enough 0/1000"]);
  watch.stop();
  open = 1_000;
  await pass(5_000);
  assert.equal(told.length, 3);
});

test("what goes to and fro at the last border is told once", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let looks = 0;
  const told: string[] = [];
  const count = async () => (looks++ % 2 === 0 ? 960 : 959);
  const watch = new DescriptorWatch({ limit: 1_024, count, onChange: ({ left }) => told.push(left) });
  watch.start();
  for (let ms = 0; ms < 10_000; ms += 150) {
    await turn();
    assert.equal(watch.seen?.left, "none");
    t.mock.timers.tick(150);
  }
  watch.stop();
  assert.ok(looks > 50, `${looks} looks`);
  assert.deepEqual(told, ["none"]);
});

test("a look that finds no descriptor for itself has found none left; one that fails otherwise has found nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let code = "EACCES";
  const told: string[] = [];
  const watch = new DescriptorWatch({
    limit: 1_000,
    count: () => Promise.reject(Object.assign(new Error("no"), { code })),
    onChange: ({ left, open, limit }) => told.push(`${left} ${open}/${limit}`),
  });
  const seenNext = async (next: string) => {
    code = next;
    t.mock.timers.tick(1_100);
    await turn();
    return watch.seen;
  };
  watch.start();
  await turn();
  assert.equal(watch.seen, undefined);
  const full = { left: "none", open: 1_000, limit: 1_000 };
  assert.deepEqual(await seenNext("EMFILE"), full);
  assert.equal(await seenNext("ENOENT"), undefined, "what was seen once does not hold for ever");
  assert.deepEqual(await seenNext("ENFILE"), full);
  assert.deepEqual(told, ["none 1000/1000"]);
  watch.stop();
});

test("it is asked how many of the limit are open", async () => {
  const asked: number[] = [];
  const count = async (limit: number) => asked.push(limit);
  const watch = new DescriptorWatch({ limit: 220, count, onChange: () => {} });
  watch.start();
  await turn();
  watch.stop();
  assert.deepEqual([asked, watch.seen], [[220], { left: "enough", open: 1, limit: 220 }]);
});

test("there is one look at a time, and one that was under way at the stop changes nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const looks: ((open: number) => void)[] = [];
  const told: string[] = [];
  const watch = new DescriptorWatch({
    limit: 1_000,
    count: () => new Promise((resolve) => looks.push(resolve)),
    onChange: ({ left }) => told.push(left),
  });
  watch.start();
  t.mock.timers.tick(60_000);
  await turn();
  assert.equal(looks.length, 1);
  looks[0]?.(10);
  await turn();
  t.mock.timers.tick(60_000);
  assert.equal(looks.length, 2);
  watch.stop();
  looks[1]?.(990);
  await turn();
  t.mock.timers.tick(60_000);
  await turn();
  assert.deepEqual(told, []);
  assert.equal(looks.length, 2);
});
