import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { FileDescriptors, type FileDescriptorsDeps } from "./file-descriptors.ts";
import { createLogger } from "./logger.ts";
import { ThrottledLog } from "./throttled-log.ts";

test("a process that runs out of file descriptors says so with figures, counts it, and refuses connections in words", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  let usedUp = 0;
  let open = 100;
  const room = new FileDescriptors({
    ...{ metrics: { filesUsedUp: () => usedUp++ }, throttledLog: new ThrottledLog(log) },
    ...{ owner: "this server", limit: 1_024, count: async () => open },
  });
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  room.start();
  assert.equal(room.shortage, undefined);
  room.requireRoom("overloaded");
  await turn();
  room.requireRoom("overloaded");
  assert.deepEqual([lines, room.problems()], [[], []]);

  open = 930;
  await pass(1_500);
  room.requireRoom("overloaded");
  open = 1_020;
  await pass(500);
  assert.match(room.shortage ?? "", /^this server has 1020 of its 1024 files open/);
  assert.throws(() => room.requireRoom("overloaded"), {
    code: "overloaded",
    message: "this server has 1020 of its 1024 files open: raise its limit (ulimit -n, LimitNOFILE=)",
  });
  assert.match(room.problems().join(), /^1020 of 1024 files are open: file descriptors are nearly used up/);
  open = 950;
  await pass(500);
  room.requireRoom("overloaded"); // who asks is served by what is true now
  assert.deepEqual(room.checks(), [{ name: "file-descriptors", ok: false, detail: "950 of 1024 in use" }]);
  open = 100;
  await pass(500);
  room.requireRoom("overloaded");
  room.stop();

  const told = lines.map(({ level, open, limit, msg }) => `${level} ${open}/${limit} ${msg}`);
  assert.equal(told.length, 3);
  assert.match(told[0] ?? "", /^warn 930\/1024 file descriptors run low/);
  assert.match(told[1] ?? "", /^error 1020\/1024 file descriptors are nearly used up.*ulimit -n/);
  assert.match(told[2] ?? "", /^info 100\/1024 file descriptors are enough again/);
  assert.equal(usedUp, 1);
});

test("a call that got no descriptor is a shortage of the process or of its machine, before any count shows it", () => {
  const log = createLogger({ level: "silent", format: "json", name: "router" });
  const deps = { metrics: { filesUsedUp: () => {} }, throttledLog: new ThrottledLog(log), limit: 1_024 };
  const room = new FileDescriptors({ ...deps, owner: "this router" });
  const failed = (code: string) => Object.assign(new Error("words"), { code });
  const own = "this router has no file descriptor left: raise its limit (ulimit -n, LimitNOFILE=)";
  assert.equal(room.shortageBehind(failed("EMFILE")), own);
  assert.equal(room.shortageBehind(new Error("not read", { cause: failed("EMFILE") })), own);
  assert.equal(room.shortageBehind(new AggregateError([failed("ECONNREFUSED"), failed("EMFILE")])), own);
  assert.equal(
    room.shortageBehind(failed("ENFILE")),
    "the machine of this router has no file descriptor left: raise fs.file-max there",
  );
  for (const other of [failed("ECONNREFUSED"), new AggregateError([failed("ETIMEDOUT")]), undefined, "EMFILE"])
    assert.equal(room.shortageBehind(other), undefined);
});

/** One with this count, and what it reports: `error 960/1024`. */
function counted(limit: number, count: (limit: number) => Promise<number>) {
  const reported: string[] = [];
  const throttledLog: FileDescriptorsDeps["throttledLog"] = {
    write: (level, { open, limit }) => void reported.push(`${level} ${open}/${limit}`),
  };
  const metrics = { filesUsedUp: () => {} };
  return { descriptors: new FileDescriptors({ metrics, throttledLog, owner: "the agent", limit, count }), reported };
}

test("a number that goes up and down at a bound is reported once", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let counts = 0;
  const { descriptors, reported } = counted(1_024, async () => (counts++ % 2 === 0 ? 960 : 959));
  descriptors.start();
  for (let ms = 0; ms < 10_000; ms += 150) {
    await turn();
    t.mock.timers.tick(150);
  }
  descriptors.stop();
  assert.ok(counts > 50, `${counts} counts`);
  assert.deepEqual(reported, ["error 960/1024"]);
});

test("a count that finds no descriptor for itself has found none left; one that fails otherwise has found nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let code = "EACCES";
  const failing = () => Promise.reject(Object.assign(new Error("no"), { code }));
  const { descriptors, reported } = counted(1_000, failing);
  descriptors.start();
  await turn();
  for (const [next, details] of [
    ["EACCES", []],
    ["EMFILE", ["1000 of 1000 in use"]],
    ["ENOENT", []],
    ["ENFILE", ["1000 of 1000 in use"]],
  ] as const) {
    code = next;
    t.mock.timers.tick(1_100);
    await turn();
    assert.deepEqual(
      descriptors.checks().map(({ detail }) => detail),
      details,
      next,
    );
  }
  assert.deepEqual(reported, ["error 1000/1000"]);
  descriptors.stop();
});

test("there is one count at a time, and one that was under way at the stop changes nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const counts: ((open: number) => void)[] = [];
  const { descriptors, reported } = counted(1_000, () => new Promise((resolve) => counts.push(resolve)));
  descriptors.start();
  t.mock.timers.tick(60_000);
  await turn();
  assert.equal(counts.length, 1);
  counts[0]?.(10);
  await turn();
  t.mock.timers.tick(60_000);
  assert.equal(counts.length, 2);
  descriptors.stop();
  counts[1]?.(990);
  await turn();
  t.mock.timers.tick(60_000);
  await turn();
  assert.deepEqual([reported, counts.length], [[], 2]);
});
