import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { createLogger } from "./logger.ts";
import { FileRoom } from "./readiness.ts";
import { ThrottledLog } from "./throttled-log.ts";

test("a process that runs out of file descriptors says so with figures, counts it, and refuses connections in words", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  let usedUp = 0;
  let open = 100;
  const room = new FileRoom({
    ...{ metrics: { filesUsedUp: () => usedUp++ }, throttledLog: new ThrottledLog(log) },
    ...{ owner: "this server", limit: 1_024, count: async () => open },
  });
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  room.start();
  assert.equal(room.shortage, undefined);
  room.mustHaveRoom("overloaded");
  await turn();
  room.mustHaveRoom("overloaded");
  assert.deepEqual([lines, room.problems()], [[], []]);

  open = 930;
  await pass(1_500);
  room.mustHaveRoom("overloaded");
  open = 1_020;
  await pass(500);
  assert.match(room.shortage ?? "", /^this server has 1020 of its 1024 files open/);
  assert.throws(() => room.mustHaveRoom("overloaded"), {
    code: "overloaded",
    message: "this server has 1020 of its 1024 files open: raise its limit (ulimit -n, LimitNOFILE=)",
  });
  assert.match(room.problems().join(), /^1020 of 1024 files are open: file descriptors are nearly used up/);
  open = 950;
  await pass(500);
  room.mustHaveRoom("overloaded"); // who asks is served by what is true now
  assert.deepEqual(room.checks(), [{ name: "file-descriptors", ok: false, detail: "950 of 1024 in use" }]);
  open = 100;
  await pass(500);
  room.mustHaveRoom("overloaded");
  room.stop();

  const told = lines.map(({ level, open, limit, msg }) => `${level} ${open}/${limit} ${msg}`);
  assert.equal(told.length, 3);
  assert.match(told[0] ?? "", /^warn 930\/1024 file descriptors run low/);
  assert.match(told[1] ?? "", /^error 1020\/1024 file descriptors are nearly used up.*ulimit -n/);
  assert.match(told[2] ?? "", /^info 100\/1024 file descriptors are enough again/);
  assert.equal(usedUp, 1);
});

test("a call that got no descriptor is the process's own fault, or its machine's, before any look tells of it", () => {
  const log = createLogger({ level: "silent", format: "json", name: "router" });
  const deps = { metrics: { filesUsedUp: () => {} }, throttledLog: new ThrottledLog(log), limit: 1_024 };
  const room = new FileRoom({ ...deps, owner: "this router" });
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
